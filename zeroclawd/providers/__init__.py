"""Model endpoints, and what answers like one: OpenAI-compatible servers, offline intents, direct calls, scripts, chains."""

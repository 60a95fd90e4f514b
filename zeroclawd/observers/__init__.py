"""Those who look on: every event is scrubbed and bounded once, here, before anybody sees it."""

"""The life of a turn: one file a stage, each with one public function; `loop` reads like the table of stages."""

"""What people type: one file a command, imported when it is called."""

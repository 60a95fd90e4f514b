"""What must survive a power cut: one SQLite file with one writer, and the device key beside it."""

# What a model is told of the tools: the message is the description, its attributes are the parameters.

tool-board-info = The board's model, temperature and uptime.

tool-content-search = Find lines in text files of the workspace.
    .pattern = Text to find
    .path = File or folder
    .include = File names, as a glob
    .regex = Pattern is a Python regular expression

tool-device-list = List all devices: what each can do, units, limits, faults.

tool-device-pulse = Switch an output on, hold it, switch it off.
    .device = Name from device_list
    .seconds = How long to hold it

tool-device-read = Take a fresh reading of a device.
    .device = Name from device_list

tool-device-write = Set an output and read it back.
    .device = Name from device_list
    .value = true/false for a switch, else as device_list says

tool-file-edit = Replace text in a workspace file; old must occur exactly once.
    .path = File in the workspace
    .old = Exact text that is there
    .new = What replaces it
    .all = Replace every occurrence

tool-file-read = Read lines of a text file.
    .path = File in the workspace
    .offset = First line, from 1
    .limit = Most lines

tool-file-write = Create a text file or replace all of it; folders are made.
    .path = File in the workspace
    .content = The whole new text

tool-glob-search = Find files and folders by name.
    .pattern = Glob below the workspace, such as **/*.py

tool-shell = Run a command in the workspace, without input. Prefer plain commands, pipes, && and ||; use relative paths.
    .command = POSIX command line

tool-time = Local time, zone and uptime.

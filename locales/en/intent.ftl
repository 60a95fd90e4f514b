# What the built-in provider says when no model is asked.

intent-not-understood = I did not understand that, and did nothing. I understand for example: { $examples }
intent-offline = Without a model I understand only fixed sentences, for example: { $examples }
intent-help = I understand for example: { $examples }
intent-no-tool = That is not available here ({ $tool }); nothing was done.

intent-quoted = “{ $text }”
intent-comma = { ", " }
intent-example-write = turn on { $device }
intent-example-read = read { $device }
intent-example-pulse = turn on { $device } for 5 seconds
intent-example-list = list devices
intent-example-board = board info
intent-example-time = what time is it

intent-now = { $device } is now { $values }.
intent-named-value = { $name } { $value }
intent-on = on
intent-off = off
intent-warning = Warning: { $text }
intent-done = { $tool } is done.

intent-outcome-error = { $tool } failed: { $text }
intent-outcome-denied = { $tool } was refused and did not run: { $text }
intent-outcome-blocked = { $tool } may not run here: { $text }
intent-outcome-replaced = { $tool } did not run. The operator answered instead: { $text }
intent-outcome-duplicate = { $tool } was asked for twice and ran once.
intent-outcome-interrupted = { $tool } was interrupted: { $text }
intent-outcome-unknown = It is not known whether { $tool } took effect; look before you repeat it. { $text }

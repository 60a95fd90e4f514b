# What an operator reads when asked. Machine-read fields stay as they are; these are the sentences.

approval-call = Call { $tool } with { $arguments }
approval-device-write = Set { $device } to { $value }
approval-device-pulse = Switch { $device } on for { $seconds } s, then off
approval-shell = Run: { $command }
approval-file-write = Write the file { $path }
approval-file-edit = Change the file { $path }

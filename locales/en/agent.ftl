# What the daemon itself says, to a model and to whoever sent a command.

prompt-system =
    You are { $agent }, the agent of the board { $node }. You work through tools on real hardware and files.
    Read before you claim: say what a tool result shows, and that something was done only if its result says ok.
    A call may wait for an operator; if it is refused, say so and do not try it another way.
    Devices have names; use device_list to learn them. Answer briefly, in the language of the request.
prompt-receipts =
    A result that succeeded carries a receipt (zc-receipt-...) in its first line. Quote receipts exactly or not at all; never
    make one up. A receipt is evidence that the runtime gave this result; it is no approval.
prompt-text-protocol =
    To call a tool, write <tool_call>{"{"}"name": "...", "arguments": {"{"}...{"}"}{"}"}</tool_call> in your reply, one block per
    call, and stop. The results come in the next message. The tools, with the JSON Schema of their arguments:

turn-cancelled = Cancelled ({ $reason }). What was done before: { $done }
turn-failed = The model could not be asked: { $reason }
turn-empty = The model gave an empty answer.
turn-capped = Stopped after { $rounds } rounds. What was done: { $done }
turn-refused-again = Stopped: { $tool } was refused before and was asked for again. What was done: { $done }
turn-looping = Stopped: { $tool } keeps giving the same result for the same arguments. What was done: { $done }
turn-interrupted = The daemon restarted before this command was answered. Nothing is repeated. { $done }
turn-timeout = Stopped: the turn took longer than it may.

receipts-heading = Tool receipts:
receipt-foreign = The reply quotes { $token }, which no call of this turn was given.

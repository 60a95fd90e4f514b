# What the command line says to people. Column heads and the keys of JSON are the same in every language.

send-accepted = accepted
send-asking = waiting for an operator:
send-offline = the node is offline; the command waits at the broker, and the node refuses it if it is too old by then
send-cancelling = cancelled; waiting a moment for what the node says
send-cancel-unanswered = the node has not said how far the command came
send-late = no last reply within { $seconds } seconds. The command may still be carried out; for its reply send the same text again with --id { $id }

approvals-none = no question is open
approvals-answer = answer
approvals-accepted = accepted
approvals-refused = refused
approvals-ended = ended
approvals-more-needed = another operator must agree
approvals-try-bad-signature = try: name and key belong together; the node's config has the public half under [operators.NAME]
approvals-try-unknown-operator = try: add the lines that `zeroclawd operator keygen` printed to the node's config
approvals-try-not-entitled = try: another operator, or one with more rights in the node's config
approvals-try-own-command = try: somebody else has to answer this
approvals-try-repeated = try: another operator has to agree as well
approvals-try-unsigned = try: --operator NAME --key FILE
approvals-try-grant-refused = try: a plain approve, without --always
approvals-try-expired = try: send the command again, and answer within its time
approvals-try-decided = try: `zeroclawd receipts list` on the node says who decided

watch-begin = watching
watch-all-nodes = all nodes
watch-as = answering as
watch-keys = a approve, d deny, r replace, s skip, q quit
watch-no-key = to answer with one key, give --operator NAME and --key FILE
watch-skipped = skipped, any key shows them again
watch-replacement = give instead of the result (Enter sends, Esc goes back):
watch-lost = no connection:
watch-back = connected again:
watch-no-word = the node has not said what became of the answer

keygen-wrote = wrote the private key; keep it where only its owner can read it:
keygen-config = for the config of each device:
keygen-client = for the owner's client file (~/.config/zeroclawd/client.toml):

receipts-none = no row matches
receipts-same-call = the same call:
receipts-ours = issued by this device, for this call:
receipts-not-ours = not of this ledger
receipts-not-ours-try = try: the ledger of another node, or an exported segment if it is old
receipts-exported = wrote rows
verify-rows = rows
verify-whole = the chain is whole
verify-not-whole = the chain is NOT whole
verify-head = head
verify-more = further problems, not shown:
verify-no-witness = a cut tail shows only against checkpoints that somebody else has kept: --checkpoint FILE

status-none = no node is known to this broker
devices-none = no device is known to this broker
devices-none-configured = no device is configured
tools-none = there is no tool
estop-engaged = stopped; outputs are in their safe states and stay there
estop-released = released; nothing was switched on

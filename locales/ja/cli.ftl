# コマンドラインが人に伝える文。表の見出しと JSON のキーはどの言語でも同じ。

send-accepted = 受け付けました
send-asking = オペレーターの判断を待っています：
send-offline = ノードはオフラインです。コマンドはブローカーで待ち、届いたとき古すぎればノードが拒否します
send-cancelling = 取り消しました。ノードの返事を少し待ちます
send-cancel-unanswered = どこまで進んだか、ノードからの返事がありません
send-late = { $seconds } 秒以内に最後の返事がありませんでした。コマンドはまだ実行されるかもしれません。返事を聞くには、同じ文を --id { $id } を付けてもう一度送ってください

approvals-none = 未回答の質問はありません
approvals-answer = 回答
approvals-accepted = 受理されました
approvals-refused = 拒否されました
approvals-ended = 終了
approvals-more-needed = もう一人のオペレーターの同意が必要です
approvals-try-bad-signature = 対処：名前と鍵の組み合わせを確かめてください。公開鍵はノードの設定の [operators.NAME] にあります
approvals-try-unknown-operator = 対処：`zeroclawd operator keygen` が表示した行をノードの設定に加えてください
approvals-try-not-entitled = 対処：別のオペレーターが答えるか、ノードの設定で権限を与えてください
approvals-try-own-command = 対処：ほかの人が答える必要があります
approvals-try-repeated = 対処：別のオペレーターの同意も必要です
approvals-try-unsigned = 対処：--operator NAME --key FILE を付けてください
approvals-try-grant-refused = 対処：--always を付けずに承認してください
approvals-try-expired = 対処：コマンドをもう一度送り、時間内に答えてください
approvals-try-decided = 対処：誰が決めたかは、ノードの `zeroclawd receipts list` で分かります

watch-begin = 監視中
watch-all-nodes = すべてのノード
watch-as = 回答者
watch-keys = a 承認、d 拒否、r 差し替え、s 後回し、q 終了
watch-no-key = キー一つで答えるには --operator NAME と --key FILE を付けてください
watch-skipped = 後回しにした質問（何かキーを押すと戻ります）
watch-replacement = 結果の代わりに渡す文（Enter で送信、Esc で戻る）：
watch-lost = 接続が切れています：
watch-back = 再び接続しました：
watch-no-word = 回答がどうなったか、ノードからの返事がありません

keygen-wrote = 秘密鍵を書き込みました。持ち主だけが読める場所に置いてください：
keygen-config = 各デバイスの設定に加える行：
keygen-client = 持ち主のクライアントファイル（~/.config/zeroclawd/client.toml）に加える行：

receipts-none = 該当する行はありません
receipts-same-call = 同じ呼び出しの行：
receipts-ours = このデバイスが次の呼び出しに対して発行しました：
receipts-not-ours = この台帳のものではありません
receipts-not-ours-try = 対処：別のノードの台帳か、古いものなら書き出したファイルを確かめてください
receipts-exported = 書き出した行
verify-rows = 行
verify-whole = 鎖は完全です
verify-not-whole = 鎖は壊れています
verify-head = 先頭のハッシュ
verify-more = 表示していない問題の数：
verify-no-witness = 末尾の切り取りは、ほかの人が保管したチェックポイントと比べて初めて分かります：--checkpoint FILE

status-none = このブローカーにノードは見つかりません
devices-none = このブローカーにデバイスは見つかりません
devices-none-configured = デバイスは設定されていません
tools-none = ツールはありません
estop-engaged = 停止しました。出力は安全な状態にあり、そのまま保たれます
estop-released = 解除しました。何もオンにはなっていません

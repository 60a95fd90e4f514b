# モデルに問い合わせないとき、組み込みのプロバイダーが言うこと。

intent-not-understood = わからなかったので、何もしていません。たとえば次の文がわかります: { $examples }
intent-offline = モデルなしでは決まった文だけがわかります。たとえば: { $examples }
intent-help = たとえば次の文がわかります: { $examples }
intent-no-tool = ここでは使えません ({ $tool })。何もしていません。

intent-quoted = 「{ $text }」
intent-comma = 、
intent-example-write = { $device }をつけて
intent-example-read = { $device }の状態を教えて
intent-example-pulse = { $device }を5秒間つけて
intent-example-list = デバイスの一覧
intent-example-board = ボードの情報を教えて
intent-example-time = 今何時ですか

intent-now = { $device } は今 { $values } です。
intent-named-value = { $name } { $value }
intent-on = オン
intent-off = オフ
intent-warning = 注意: { $text }
intent-done = { $tool } を実行しました。

intent-outcome-error = { $tool } は失敗しました: { $text }
intent-outcome-denied = { $tool } は断られ、実行していません: { $text }
intent-outcome-blocked = { $tool } はここでは実行できません: { $text }
intent-outcome-replaced = { $tool } は実行していません。オペレーターの返事: { $text }
intent-outcome-duplicate = { $tool } は二度求められ、一度だけ実行しました。
intent-outcome-interrupted = { $tool } は途中で止まりました: { $text }
intent-outcome-unknown = { $tool } が効いたかどうかわかりません。繰り返す前に確かめてください。{ $text }

# オペレーターに尋ねるときの文。機械が読む項目はそのまま。

approval-call = { $tool } を { $arguments } で呼び出す
approval-device-write = { $device } を { $value } にする
approval-device-pulse = { $device } を { $seconds } 秒だけ入れて切る
approval-shell = 実行: { $command }
approval-file-write = ファイル { $path } に書き込む
approval-file-edit = ファイル { $path } を書き換える

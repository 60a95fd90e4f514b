# モデルに伝えるツールの説明。メッセージが説明、属性が引数。

tool-board-info = ボードの機種、温度、稼働時間を調べる。

tool-content-search = 作業フォルダーのテキストから該当する行を探す。
    .pattern = 探す文字列
    .path = 対象のファイルまたはフォルダー
    .include = 対象のファイル名 (glob)
    .regex = pattern を Python の正規表現とみなす

tool-device-list = 全デバイスの機能、単位、制限、故障を一覧する。

tool-device-pulse = 出力を入れ、指定の時間だけ保ち、切る。
    .device = device_list にある名前
    .seconds = 入れておく秒数

tool-device-read = デバイスの今の値を測る。
    .device = device_list にある名前

tool-device-write = 出力を設定し、結果を読み戻す。
    .device = device_list にある名前
    .value = スイッチは true/false、ほかは device_list の説明どおり

tool-file-edit = ファイルの一部を書き換える。old はちょうど一か所にあること。
    .path = 作業フォルダー内のファイル
    .old = 今ある文字列 (一字も違えずに)
    .new = 置き換える文字列
    .all = 見つかった箇所をすべて置き換える

tool-file-read = テキストファイルを行単位で読む。
    .path = 作業フォルダー内のファイル
    .offset = 最初の行 (1 から)
    .limit = 読む行数の上限

tool-file-write = テキストファイルを作る、または全体を書き直す。フォルダーも作る。
    .path = 作業フォルダー内のファイル
    .content = 新しい全文

tool-glob-search = 名前でファイルとフォルダーを探す。
    .pattern = 作業フォルダー以下の glob (例: **/*.py)

tool-shell = 作業フォルダーでコマンドを実行する (入力なし)。単純なコマンド、パイプ、&&、|| と相対パスを使うこと。
    .command = POSIX のコマンド行

tool-time = 現地時刻、時間帯、稼働時間を調べる。

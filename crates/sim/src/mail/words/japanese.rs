use super::{Lexicon, Phrases, list, names};

pub fn lexicon() -> Lexicon {
    Lexicon {
        things: list(
            "請求書, 契約書, 報告書, 予算, 日程, 見積書, 注文書, 商品, 下書き, 議事録, 資料, 合意書, 前金, 添付ファイル, 申請書, \
             分析結果, 許可証, 保険証券, 証明書, 監査結果, 委任状, お知らせ, 賃貸契約, 帳簿, 切符, パンフレット, カタログ, 保証金, \
             条項, 鍵, 小包, 比較表, 写し, 手紙, 締め切り, 申告書, デモ, 経費精算書, 図面, 仕様書, サンプル, 包装, 面接日程, \
             アンケート, 倉庫, 設備, 見積もり, 調査, 出荷票, 技術資料, 研修計画, 用紙, 保証書, 価格表, 障害報告, 在庫, 経路, \
             顧客名簿, ソフトウェア, 保守計画, マニュアル, 模型, 材料, 測定値, 工具, 支払い, 部品, 勤務表, 手順書, 試作品, 領収書, \
             苦情, 督促状, 返金, 予約, 修理票, 会議室, サーバー, 署名, 残高, 戦略, 料金表, 翻訳, 輸送計画, 振込, 出張",
        ),
        verbs: list(
            "確認, 送付, 署名, 承認, 更新, 完了, 準備, 検討, 転送, 印刷, 比較, 訂正, 調整, 保管, 評価, 予約, 計算, 取り消し, 変更, \
             説明, 受け取り, 追加, 納品, 延長, 改善, 設置, 測定, 移動, 発注, 公開, 交換, 短縮, 共有, 試験, 翻訳",
        ),
        qualities: list(
            "順調です, 問題ありません, 完了しています, 至急です, 不明です, 高価です, 簡単です, 安定しています, 未定です, 遅れています",
        ),
        days: list("月曜日, 火曜日, 水曜日, 木曜日, 金曜日, 明日, 来週, 月末, 四半期末, 展示会, 年末"),
        places: list(
            "事務所, 倉庫, お客様先, 工場, 共有フォルダ, 会議, 銀行, 港, 研究所, 受付, 二階, 資料室, 食堂, 現場, 税関, 駅, 空港, 支店",
        ),
        sentences: SENTENCES,
        subjects: SUBJECTS,
        greetings: &["皆様", "お世話になっております。", "お疲れ様です。", "おはようございます。"],
        closings: &["よろしくお願いいたします。", "以上、よろしくお願いします。", "ありがとうございます。"],
        given_names: names(
            "葵=aoi, 楓=kaede, 健太=kenta, 桜子=sakurako, 翔太=shota, 千夏=chinatsu, 直樹=naoki, 陽菜=hina, 美咲=misaki, 蓮=ren, \
             涼介=ryosuke, 結衣=yui",
        ),
        family_names: names(
            "朝霧=asagiri, 綾小路=ayanokoji, 月島=tsukishima, 花園=hanazono, 白鳥=shiratori, 水無瀬=minase, 雪村=yukimura, 若葉=wakaba, \
             風間=kazama, 星野川=hoshinogawa",
        ),
        phrases: PHRASES,
    }
}

const SENTENCES: &[&str] = &[
    "{day}までに{thing}の{verb}をお願いいたします。",
    "{project}の{thing}について、まだ{verb}が必要です。",
    "{thing}と{thing}を{place}に置きました。",
    "こちらは{quality}。",
    "{thing}を{verb}のうえ、ご連絡ください。",
    "{person}さんから、{day}までに{thing}の{verb}ができるかと質問がありました。",
    "合計は{amount}で、前回より{count}パーセント増えました。",
    "{person}さんによると、{thing}は{quality}。",
    "{thing}が届き次第、{thing}の{verb}を始めます。",
    "未解決の項目が{count}件あり、主に{thing}に関するものです。",
    "番号{code}は{project}のものです。",
    "{place}で{thing}が見つからず、もう一度{verb}しました。",
    "今週中に{thing}の{verb}ができれば、{day}に{thing}へ進めます。",
    "{project}については税抜き{amount}で合意しました。",
    "{thing}をありがとうございました。大変助かりました。",
    "障害は復旧しました。{place}の{thing}を交換しました。",
    "{day}に候補者が二名来ます。{thing}の準備をお願いします。",
    "電車は{count}時半ごろに着きます。その後{thing}を{verb}しましょう。",
    "銀行から{code}の入金{amount}の連絡がありました。",
    "{day}までは{thing}の{verb}をしないでください。",
    "{project}について{count}件の質問がありました。",
    "本日、{person}さんと{thing}の{verb}を行います。",
    "お約束の{thing}をお送りします。{thing}は{day}になります。",
    "お客様は{thing}を変更なしで了承されました。",
    "仕入先の都合で{thing}の{verb}が遅れ、残りは{count}個です。",
    "休暇中の{thing}の{verb}はどなたが担当されますか。",
    "{thing}の{verb}に{count}時間かかりました。",
    "返信が遅くなり申し訳ありません。一日中{project}の対応をしておりました。",
];

const SUBJECTS: &[&str] = &[
    "{project}: {thing}の{verb}のお願い",
    "{thing}についての質問",
    "請求書 {code}",
    "{project}の契約について",
    "{day}の会議について",
    "障害報告 {code}",
    "{person}さんの面接",
    "{day}の出張",
    "{project}の今後の進め方",
    "{project}: 予算{amount}",
    "至急: {thing}の{verb}",
    "{thing}の変更 ({code})",
];

const PHRASES: Phrases = Phrases {
    reply: "Re: ",
    forward: "Fwd: ",
    wrote: "{date} {person} さんのメッセージ:",
    forwarded: "転送メッセージ",
    from: "差出人",
    date: "日時",
    subject: "件名",
    to: "宛先",
    total: "合計",
    unsubscribe: "配信停止",
    order: "ご注文 {code} を承りました",
    shipped: "お荷物 {code} を発送しました",
    invoice: "請求書 {code} ({amount})",
    receipt: "お支払い {amount} の領収書",
    reset: "パスワードの再設定",
    alert: "[警告] {code}: ディスク使用率 {percent} %",
    invitation: "会議のご案内: {project}",
    away: "不在のお知らせ: ",
    away_text: "ご連絡ありがとうございます。{day}まで不在にしております。戻り次第ご返信いたします。",
    newsletter: "{thing}の{verb}に役立つ{count}のヒント",
};

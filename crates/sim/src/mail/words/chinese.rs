use super::{Lexicon, Phrases, list, names};

pub fn lexicon() -> Lexicon {
    Lexicon {
        things: list(
            "发票, 合同, 报告, 预算, 日程, 报价, 订单, 货物, 草案, 会议记录, 文件, 协议, 定金, 附件, 申请, 分析, 许可证, \
             保险单, 证书, 审计结果, 授权书, 通知, 租约, 账目, 车票, 宣传册, 目录, 保证金, 条款, 钥匙, 包裹, 对比表, 副本, \
             信件, 截止日期, 声明, 演示, 费用表, 图纸, 说明书, 样品, 包装, 面试安排, 调查问卷, 仓库, 设备, 估价, 研究, \
             发货单, 技术参数, 培训计划, 表格, 保修单, 价目表, 事故报告, 库存, 路线, 客户名单, 软件, 维护计划, 手册, 模型, \
             材料, 测量数据, 工具, 付款, 零件, 排班表, 流程, 原型, 收据, 投诉, 提醒, 退款, 预约, 维修单, 会议室, 服务器, \
             签名, 余额, 战略, 关税, 翻译, 运输方案, 汇款, 行程",
        ),
        verbs: list(
            "检查, 发送, 签署, 批准, 确认, 更新, 完成, 准备, 讨论, 转发, 打印, 比较, 更正, 调整, 归档, 评估, 预订, 计算, 取消, \
             修改, 说明, 领取, 补充, 复印, 交付, 延长, 改进, 安装, 测量, 移动, 支付, 发布, 更换, 扫描, 缩短, 测试, 上传",
        ),
        qualities: list(
            "很好, 齐全, 正常, 很紧急, 不清楚, 很贵, 很难, 简单, 可用, 很稳定, 不完整, 过期了, 很有希望, 有风险",
        ),
        days: list("星期一, 星期二, 星期三, 星期四, 星期五, 明天, 下周, 月底, 季度末, 展会, 春节"),
        places: list(
            "办公室, 仓库, 客户那里, 车间, 共享文件夹, 会议上, 银行, 港口, 实验室, 前台, 二楼, 档案室, 食堂, 工地, 海关, 车站, 机场, 分公司",
        ),
        sentences: SENTENCES,
        subjects: SUBJECTS,
        greetings: &["大家好,", "您好,", "各位同事,", "早上好,"],
        closings: &["此致敬礼", "谢谢", "祝好", "顺祝商祺"],
        given_names: names(
            "雪梅=xuemei, 志远=zhiyuan, 春晓=chunxiao, 海波=haibo, 静怡=jingyi, 明哲=mingzhe, 秋月=qiuyue, 思源=siyuan, 文博=wenbo, \
             小雨=xiaoyu, 一鸣=yiming, 子涵=zihan",
        ),
        family_names: names(
            "欧阳=ouyang, 司徒=situ, 上官=shangguan, 慕容=murong, 诸葛=zhuge, 尉迟=yuchi, 端木=duanmu, 东方=dongfang, 南宫=nangong, \
             百里=baili",
        ),
        phrases: PHRASES,
    }
}

const SENTENCES: &[&str] = &[
    "请在{day}之前{verb}{thing}。",
    "我们还需要为{project}{verb}{thing}。",
    "我把{thing}和{thing}放在{place}了。",
    "我这边一切{quality}。",
    "请{verb}{thing},然后告诉我结果。",
    "{person}问我们能否在{day}之前{verb}{thing}。",
    "总额是{amount},比上次多百分之{count}。",
    "据{person}说,情况{quality}。",
    "收到{thing}以后,我就可以{verb}{thing}。",
    "清单上有{count}个未解决的问题,主要是{thing}。",
    "编号{code}属于{project}。",
    "在{place}没有人找到{thing},所以我只好重新{verb}。",
    "如果这周能{verb}{thing},{day}就可以处理{thing}。",
    "关于{project},我们商定的价格是{amount},不含税。",
    "谢谢你的{thing},帮助很大。",
    "故障已经排除,我们更换了{place}的{thing}。",
    "两位应聘者{day}来面试,请准备{thing}。",
    "我的火车大约{count}点半到,到时可以{verb}{thing}。",
    "银行已确认{code}的付款{amount}。",
    "{day}之前最好不要{verb}{thing}。",
    "会上有{count}个关于{project}的问题。",
    "我和{person}今天会{verb}{thing}。",
    "按照约定,先发{thing},{thing}随后寄出。",
    "客户接受了{thing},没有修改。",
    "供应商不能按时{verb}{thing},只剩{count}件。",
    "休假期间谁可以{verb}{thing}?",
    "{verb}{thing}一共用了{count}个小时。",
    "抱歉回复晚了,今天一直在忙{project}。",
];

const SUBJECTS: &[&str] = &[
    "{project}: 请{verb}{thing}",
    "关于{thing}的问题",
    "发票 {code}",
    "{project}合同",
    "{day}的会议",
    "事故报告 {code}",
    "{person}的面试",
    "{day}出差安排",
    "{project}的下一步",
    "{project}: 预算{amount}",
    "能否在{day}之前{verb}{thing}?",
    "紧急: {verb}{thing}",
];

const PHRASES: Phrases = Phrases {
    reply: "回复: ",
    forward: "转发: ",
    wrote: "{date},{person} 写道:",
    forwarded: "转发的邮件",
    from: "发件人",
    date: "日期",
    subject: "主题",
    to: "收件人",
    total: "合计",
    unsubscribe: "退订",
    order: "我们已收到您的订单 {code}",
    shipped: "您的包裹 {code} 已发出",
    invoice: "您的发票 {code},金额 {amount}",
    receipt: "付款收据 {amount}",
    reset: "重置您的密码",
    alert: "[警报] {code}: 磁盘已用 {percent} %",
    invitation: "邀请: {project}会议",
    away: "不在办公室: ",
    away_text: "谢谢您的来信。我不在办公室,{day}之后回复。",
    newsletter: "{count}个{verb}{thing}的好方法",
};

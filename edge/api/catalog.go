package api

import "time"

// Code is a problem's code, which scripts compare.
type Code string

// Lang is a language of texts for people.
type Lang int

// The languages.
const (
	English Lang = iota
	Chinese
)

// Entry is what a code means to whoever receives it. The reference page is made from it.
type Entry struct {
	Status int
	// Permanent: the same request will get the same answer for ever.
	Permanent bool
	// SameID: trying again is done with the same request_id (or payment_id).
	SameID bool
	// Wait is how long to wait before trying again; 0: waiting does not help, or it depends.
	Wait time.Duration
	// Title names the problem and Tell says what to tell a person, by language.
	Title [2]string
	Tell  [2]string
}

// The codes of contract §3.
const (
	InvalidArgument     Code = "INVALID_ARGUMENT"
	Unauthenticated     Code = "UNAUTHENTICATED"
	SignatureInvalid    Code = "SIGNATURE_INVALID"
	PermitInvalid       Code = "PERMIT_INVALID"
	NotEligible         Code = "NOT_ELIGIBLE"
	HomeRegionRequired  Code = "HOME_REGION_REQUIRED"
	HomeRegionChanged   Code = "HOME_REGION_CHANGED"
	NotFound            Code = "NOT_FOUND"
	OrderUnknown        Code = "ORDER_UNKNOWN"
	MethodNotAllowed    Code = "METHOD_NOT_ALLOWED"
	IdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"
	AlreadyReserved     Code = "ALREADY_RESERVED"
	AlreadyPurchased    Code = "ALREADY_PURCHASED"
	OrderClosed         Code = "ORDER_CLOSED"
	OrderPaid           Code = "ORDER_PAID"
	PaymentInProgress   Code = "PAYMENT_IN_PROGRESS"
	PaymentMismatch     Code = "PAYMENT_MISMATCH"
	TempSoldOut         Code = "TEMP_SOLD_OUT"
	NotStarted          Code = "NOT_STARTED"
	TooManyUnpaid       Code = "TOO_MANY_UNPAID"
	FinalSoldOut        Code = "FINAL_SOLD_OUT"
	Ended               Code = "ENDED"
	RateLimited         Code = "RATE_LIMITED"
	QueueFull           Code = "QUEUE_FULL"
	Throttled           Code = "THROTTLED"
	Paused              Code = "PAUSED"
	NotReady            Code = "NOT_READY"
	HomeCellUnavailable Code = "HOME_CELL_UNAVAILABLE"
	MovedPending        Code = "MOVED_PENDING"
	Internal            Code = "INTERNAL"
)

// Catalog has every code that an answer can carry.
var Catalog = map[Code]Entry{
	InvalidArgument: {
		400, true, false, 0,
		[2]string{"The request breaks a rule", "请求不符合规则"},
		[2]string{"Something in the request is not as it must be; errors[] names it.", "请求内容有误，errors[] 中已指出具体位置。"},
	},
	Unauthenticated: {
		401, false, true, 0,
		[2]string{"Not signed in", "尚未登录"},
		[2]string{"Please sign in again.", "请重新登录。"},
	},
	SignatureInvalid: {
		401, true, false, 0,
		[2]string{"The signature is not valid", "签名无效"},
		[2]string{"The payment channel's message was refused; nothing was changed.", "支付渠道的消息未被接受，数据没有变化。"},
	},
	PermitInvalid: {
		403, false, true, 0,
		[2]string{"The permit is not valid", "购买凭证无效"},
		[2]string{"Please ask for a new permit and try again.", "请重新获取购买凭证后再试。"},
	},
	NotEligible: {
		403, true, false, 0,
		[2]string{"Not eligible for this sale", "不符合本次活动的参与条件"},
		[2]string{"This account cannot take part in this sale.", "该账号不能参加本次活动。"},
	},
	HomeRegionRequired: {
		403, true, false, 0,
		[2]string{"A home region is required", "需要归属地区"},
		[2]string{"This sale is held by home region and the account has none that takes part.", "本次活动按归属地区进行，该账号没有可参加的归属地区。"},
	},
	HomeRegionChanged: {
		403, true, false, 0,
		[2]string{"The home region changed too late", "归属地区变更过晚"},
		[2]string{"The account's home region changed after this sale was published; it cannot take part.", "该账号的归属地区在活动发布后发生过变更，不能参加本次活动。"},
	},
	NotFound: {
		404, true, false, 0,
		[2]string{"Not found", "未找到"},
		[2]string{"There is nothing here for this account.", "该账号下没有对应的内容。"},
	},
	OrderUnknown: {
		404, true, false, 0,
		[2]string{"The order is unknown", "订单不存在"},
		[2]string{"The message was recorded; do not send it again.", "消息已记录，请勿重复发送。"},
	},
	MethodNotAllowed: {
		405, true, false, 0,
		[2]string{"The method is not allowed here", "不支持该请求方法"},
		[2]string{"The Allow header names the methods.", "可用的方法见 Allow 响应头。"},
	},
	IdempotencyConflict: {
		409, true, false, 0,
		[2]string{"The id was used for something else", "该请求编号已用于其他内容"},
		[2]string{"An earlier request has the same id and other contents; it stands as it was.", "之前的请求使用了同一编号但内容不同，原请求保持不变。"},
	},
	AlreadyReserved: {
		409, false, false, 0,
		[2]string{"Already reserved", "您已有待支付的预订"},
		[2]string{"There is already a reservation for this account; see status_url.", "该账号已有预订，请通过 status_url 查看。"},
	},
	AlreadyPurchased: {
		409, true, false, 0,
		[2]string{"Already purchased", "您已购买过"},
		[2]string{"This account has bought its share; see status_url.", "该账号已购买，请通过 status_url 查看。"},
	},
	OrderClosed: {
		409, true, false, 0,
		[2]string{"The order is closed", "订单已关闭"},
		[2]string{"The account's only order of this sale was closed and there is no second one.", "该账号在本次活动中的唯一订单已关闭，不能再次下单。"},
	},
	OrderPaid: {
		409, true, false, 0,
		[2]string{"The order is paid", "订单已支付"},
		[2]string{"The order is paid; it can be neither cancelled nor paid again.", "订单已支付，不能取消或再次支付。"},
	},
	PaymentInProgress: {
		409, false, true, 5 * time.Second,
		[2]string{"A payment is in progress", "支付正在进行"},
		[2]string{"A payment of this order is under way; wait for its result.", "该订单正在支付，请等待结果。"},
	},
	PaymentMismatch: {
		409, true, false, 0,
		[2]string{"The payment does not match", "支付信息不一致"},
		[2]string{"Amount, currency or order differ; the message was recorded; do not send it again.", "金额、币种或订单不一致，消息已记录，请勿重复发送。"},
	},
	TempSoldOut: {
		409, false, true, time.Second,
		[2]string{"Sold out for now", "暂时售罄"},
		[2]string{"Nothing is left at the moment; unpaid units may come back.", "目前已无库存，未支付的商品可能会释放。"},
	},
	NotStarted: {
		409, false, true, time.Second,
		[2]string{"Not started yet", "尚未开始"},
		[2]string{"The sale has not started yet.", "活动尚未开始。"},
	},
	TooManyUnpaid: {
		409, false, true, 10 * time.Second,
		[2]string{"Too many unpaid orders", "待支付订单过多"},
		[2]string{"Pay for or cancel an open order first.", "请先支付或取消未完成的订单。"},
	},
	FinalSoldOut: {
		410, true, false, 0,
		[2]string{"Sold out", "已售罄"},
		[2]string{"Everything is sold and nothing comes back.", "商品已全部售出，不再补货。"},
	},
	Ended: {
		410, true, false, 0,
		[2]string{"The sale has ended", "活动已结束"},
		[2]string{"The sale has ended.", "活动已结束。"},
	},
	RateLimited: {
		429, false, true, time.Second,
		[2]string{"Too many requests", "请求过于频繁"},
		[2]string{"Too many requests came from here; wait a moment.", "请求过于频繁，请稍候。"},
	},
	QueueFull: {
		429, false, true, time.Second,
		[2]string{"The queue is full", "排队人数已满"},
		[2]string{"Many people are ahead; try again in a moment.", "排队人数较多，请稍后再试。"},
	},
	Throttled: {
		429, false, true, 500 * time.Millisecond,
		[2]string{"Very busy", "系统繁忙"},
		[2]string{"Very busy right now; try again in a moment.", "系统繁忙，请稍后再试。"},
	},
	Paused: {
		503, false, true, 2 * time.Second,
		[2]string{"The sale is paused", "活动暂停"},
		[2]string{"The sale is paused for a moment; nothing is lost.", "活动暂停中，您的进度不会丢失。"},
	},
	NotReady: {
		503, false, true, time.Second,
		[2]string{"Not ready", "服务暂未就绪"},
		[2]string{"We could not find out; repeat with the same id and Retry-Attempt.", "暂时无法确认结果，请使用同一编号并带上 Retry-Attempt 重试。"},
	},
	HomeCellUnavailable: {
		503, false, true, 5 * time.Second,
		[2]string{"Not reachable for this account right now", "该账号暂时无法提供服务"},
		[2]string{"The part of the system that serves this account is down; try again later with the same id.", "负责该账号的系统暂不可用，请稍后使用同一编号重试。"},
	},
	MovedPending: {
		503, false, true, 2 * time.Second,
		[2]string{"Being moved", "正在迁移"},
		[2]string{"This account is being moved to another part of the system; try again in a moment.", "该账号正在迁移，请稍后再试。"},
	},
	Internal: {
		500, false, true, 2 * time.Second,
		[2]string{"Something went wrong", "内部错误"},
		[2]string{"Something went wrong on our side; repeat with the same id.", "系统出现错误，请使用同一编号重试。"},
	},
}

package api

import (
	"strconv"
	"strings"

	cq "github.com/cellquota/cellquota/proto/cellquota/v1"
)

// maxPreferences bounds how much of an Accept-Language is read.
const maxPreferences = 16

// language picks the better liked of the languages there are texts in; English where nobody cares.
func language(accept string) Lang {
	best, lang := 0.0, English
	for i, part := range strings.SplitN(accept, ",", maxPreferences) {
		if i == maxPreferences-1 {
			break // the rest in one piece
		}
		tag, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := quality(params)
		primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
		switch {
		case q <= best:
		case primary == "zh":
			best, lang = q, Chinese
		case primary == "en":
			best, lang = q, English
		}
	}
	return lang
}

func quality(params string) float64 {
	value, found := strings.CutPrefix(strings.TrimSpace(params), "q=")
	if !found {
		return 1
	}
	q, err := strconv.ParseFloat(value, 64)
	if err != nil || q < 0 || q > 1 {
		return 0
	}
	return q
}

// messages say what a state means to the person who waits for it.
var messages = map[cq.RequestState][2]string{
	cq.RequestState_REQUEST_STATE_ADMITTED:        {"Your request was accepted and is being queued. This is not an order yet.", "您的请求已受理，正在排队，尚未生成订单。"},
	cq.RequestState_REQUEST_STATE_QUEUED:          {"Your request is in the queue. This is not an order yet.", "您的请求正在排队，尚未生成订单。"},
	cq.RequestState_REQUEST_STATE_PENDING_PAYMENT: {"Your order is waiting for payment.", "订单已生成，请尽快支付。"},
	cq.RequestState_REQUEST_STATE_PAID:            {"Your order is paid.", "订单已支付。"},
	cq.RequestState_REQUEST_STATE_CLOSED:          {"Your order was closed.", "订单已关闭。"},
	cq.RequestState_REQUEST_STATE_REJECTED:        {"Your request did not lead to an order.", "很抱歉，您的请求未能生成订单。"},
	cq.RequestState_REQUEST_STATE_RELEASED:        {"Your request was given back before an order was made.", "您的请求在生成订单前已被释放。"},
	cq.RequestState_REQUEST_STATE_MANUAL_REVIEW:   {"Your request is being looked at by a person.", "您的请求正在人工处理。"},
}

// reasons say more, where a request ended for a reason that a person can understand.
var reasons = map[cq.Reason][2]string{
	cq.Reason_REASON_ALREADY_RESERVED:     {"Another request of yours already holds a reservation.", "您的另一个请求已完成预订。"},
	cq.Reason_REASON_ALREADY_PURCHASED:    {"You have already bought.", "您已购买过。"},
	cq.Reason_REASON_ORDER_CLOSED:         {"Your order of this sale was closed.", "您在本次活动中的订单已关闭。"},
	cq.Reason_REASON_SOLD_OUT:             {"Sold out before your turn came.", "在轮到您之前商品已售完。"},
	cq.Reason_REASON_EXPIRED:              {"It was not paid in time.", "未在规定时间内支付。"},
	cq.Reason_REASON_CANCELLED:            {"You cancelled it.", "您已取消。"},
	cq.Reason_REASON_CELL_FENCED:          {"The part of the system that held it failed; no order was made.", "负责处理的系统发生故障，未生成订单。"},
	cq.Reason_REASON_LOST_ADMISSION:       {"It was lost in a failure before an order was made; you may try again.", "因系统故障在生成订单前丢失，您可以重试。"},
	cq.Reason_REASON_WINDOW_CLOSED:        {"It came outside the time of the sale.", "不在活动时间内。"},
	cq.Reason_REASON_MOVED:                {"Your account was moved; try again.", "您的账号已迁移，请重试。"},
	cq.Reason_REASON_IDEMPOTENCY_CONFLICT: {"The id was used for something else.", "该请求编号已用于其他内容。"},
	cq.Reason_REASON_TOO_MANY_UNPAID:      {"Too many orders were open; pay for or cancel one first.", "待支付订单过多，请先支付或取消未完成的订单。"},
}

// message is the text of a request or an order for a person. The reason is used only where nothing
// was bought, so that no text contradicts its state.
func message(state cq.RequestState, reason cq.Reason, lang Lang) string {
	switch state {
	case cq.RequestState_REQUEST_STATE_REJECTED, cq.RequestState_REQUEST_STATE_RELEASED, cq.RequestState_REQUEST_STATE_CLOSED:
		if text, ok := reasons[reason]; ok {
			return messages[state][lang] + space(lang) + text[lang]
		}
	default: // the others have no case of their own: what follows the switch holds
	}
	return messages[state][lang]
}

func space(lang Lang) string {
	if lang == Chinese {
		return ""
	}
	return " "
}

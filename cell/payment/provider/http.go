package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/cellquota/cellquota/cell/reservation"
	"github.com/cellquota/cellquota/internal/clock"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/signed"
)

// HTTP is a channel behind HTTP; doc.go says what it must offer.
type HTTP struct {
	URL     string
	Timeout time.Duration // default 2 s
	Client  *http.Client  // default: a client of its own
	// Keys gives those that sign questions now, and by one of which answers must be signed; nil:
	// neither is.
	Keys func() *signed.KeySet
	// Key is the id of the one that signs questions.
	Key string
	// Clock is the time of signatures; set with Keys.
	Clock clock.Clock
}

const (
	defaultTimeout = 2 * time.Second
	maxAnswer      = 16 << 10
	// signatureWindow is how far an answer's signature may be off.
	signatureWindow = 5 * time.Minute
)

var (
	errUnsigned = errors.New("the payment channel's answer is not signed by a key we hold")
	// errBadName: joining such a name would ask about something else, under a signature of ours.
	errBadName = errors.New("bad data: an order_id, payment_id or refund_id that no address can hold")
)

// Inquire asks the channel; anything but a clear answer is Unknown.
func (h *HTTP) Inquire(ctx context.Context, order ids.OrderID, payment ids.PaymentID) (Answer, error) {
	code, body, err := h.ask(ctx, http.MethodGet, nil, "orders", string(order), "payments", string(payment))
	switch {
	case err != nil:
		return Answer{Status: Unknown}, err
	case code == http.StatusOK:
		return decode(body, Succeeded, Failed, None, Unknown)
	case code == http.StatusNotFound:
		return Answer{Status: None}, nil
	}
	return Answer{Status: Unknown}, fmt.Errorf("the payment channel answered %d", code)
}

// InquireOrder asks for every payment of an order; anything but a whole, clear list is an error, 404 too: it
// may be of a channel that has no such question.
func (h *HTTP) InquireOrder(ctx context.Context, order ids.OrderID) ([]Found, error) {
	code, body, err := h.ask(ctx, http.MethodGet, nil, "orders", string(order), "payments")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the payment channel answered %d to the question for an order's payments", code)
	}
	if err != nil {
		return nil, err
	}
	return decodeList(body)
}

// Refund asks for a refund; anything but a clear answer is Unknown.
func (h *HTTP) Refund(ctx context.Context, want RefundOrder) (Answer, error) {
	none := Answer{Status: Unknown}
	question, err := json.Marshal(map[string]string{"amount": want.Amount.Amount(), "currency": want.Amount.Currency})
	if err != nil {
		return none, err
	}
	code, body, err := h.ask(ctx, http.MethodPut, question, "orders", string(want.Order), "payments", string(want.Payment), "refunds", want.ID)
	switch {
	case err != nil:
		return none, err
	case code == http.StatusOK || code == http.StatusAccepted:
		return decode(body, Refunded, Pending, Refused, Unknown)
	}
	return none, fmt.Errorf("the payment channel answered %d", code)
}

// ask puts one question within the time-out. It follows no redirect: the question was for this channel.
func (h *HTTP) ask(ctx context.Context, method string, question []byte, path ...string) (code int, body []byte, err error) {
	timeout := h.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if i := slices.IndexFunc(path, func(name string) bool { return name == "." || name == ".." }); i >= 0 {
		return 0, nil, fmt.Errorf("%w: %q", errBadName, path[i])
	}
	address, err := url.JoinPath(h.URL, path...)
	if err != nil {
		return 0, nil, fmt.Errorf("provider.url: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(question))
	if err != nil {
		return 0, nil, fmt.Errorf("provider.url: %w", err)
	}
	if question != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := h.sign(req, question); err != nil {
		return 0, nil, err
	}
	client := http.Client{}
	if h.Client != nil {
		client = *h.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the payment channel: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1)); err != nil || len(body) > maxAnswer {
		return 0, nil, fmt.Errorf("the payment channel's answer is cut or longer than %d bytes: %w", maxAnswer, err)
	}
	return res.StatusCode, body, h.verify(res, req.URL.Path, body)
}

// signedText is what a signature is over: nothing signed for one question or answer serves for another.
func signedText(what, path string, body []byte) []byte {
	return append([]byte(what+" "+path+"\n"), body...)
}

func (h *HTTP) sign(req *http.Request, body []byte) error {
	if h.Keys == nil {
		return nil
	}
	header, err := signed.SignPayment(h.Clock.Now(), signedText(req.Method, req.URL.Path, body), h.Keys(), h.Key)
	if err != nil {
		return err
	}
	req.Header.Set(signed.PaymentHeader, header)
	return nil
}

func (h *HTTP) verify(res *http.Response, path string, body []byte) error {
	if h.Keys == nil {
		return nil
	}
	text := signedText("ANSWER", path, body)
	if err := signed.VerifyPayment(res.Header.Get(signed.PaymentHeader), text, h.Clock.Now(), signatureWindow, h.Keys()); err != nil {
		return fmt.Errorf("%w: %w", errUnsigned, err)
	}
	return nil
}

// decodeList reads the payments of an order; one that cannot be read makes the list none.
func decodeList(body []byte) ([]Found, error) {
	var in struct {
		Payments *[]json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the payment channel's list: %w", err)
	}
	if in.Payments == nil {
		return nil, errors.New("the payment channel's answer has no list of payments")
	}
	var out []Found
	for _, raw := range *in.Payments {
		var name struct {
			Payment string `json:"payment_id"`
		}
		if err := json.Unmarshal(raw, &name); err != nil {
			return nil, fmt.Errorf("the payment channel's list: %w", err)
		}
		id, err := ids.ParsePaymentID(name.Payment)
		if err != nil {
			return nil, fmt.Errorf("the payment channel's list: %w", err)
		}
		if slices.ContainsFunc(out, func(f Found) bool { return f.Payment == id }) {
			return nil, fmt.Errorf("the payment channel's list has payment %s twice", id)
		}
		answer, err := decode(raw, Succeeded, Failed, Refunded, Unknown)
		if err != nil {
			return nil, err
		}
		out = append(out, Found{Payment: id, Answer: answer})
	}
	return out, nil
}

// decode reads an answer whose status is one of words. An amount that is named is one of money that moved.
func decode(body []byte, words ...Status) (Answer, error) {
	none := Answer{Status: Unknown}
	var in struct {
		Status           Status `json:"status"`
		Amount, Currency string
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return none, fmt.Errorf("the payment channel's answer: %w", err)
	}
	if !slices.Contains(words, in.Status) {
		return none, fmt.Errorf("the payment channel's status %q is none of ours", in.Status)
	}
	if in.Amount == "" {
		return Answer{Status: in.Status}, nil
	}
	amount, err := reservation.ParseMoney(in.Amount, in.Currency)
	if err != nil {
		return none, fmt.Errorf("the payment channel's amount: %w", err)
	}
	if in.Status == Refunded && amount.Tenthousandths == 0 {
		return none, errors.New("the payment channel refunded nothing")
	}
	return Answer{Status: in.Status, Amount: amount}, nil
}

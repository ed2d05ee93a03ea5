package signed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var callback = []byte(`{"payment_id":"p-1","order_id":"cell-1.oxxx","amount":"4999.00","currency":"CNY","status":"SUCCEEDED"}`)

// twinHeader computes the signature as contract §3 writes it.
func twinHeader(key, kid string, at time.Time, body []byte) string {
	h := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(h, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,kid=%s,v1=%s", at.Unix(), kid, hex.EncodeToString(h.Sum(nil)))
}

func TestPaymentSignatureIsTheContracts(t *testing.T) {
	t.Parallel()
	keys := keySet(t, UsePayment, keyOne, keyTwo)
	for kid, key := range map[string]string{"k1": keyOne, "k2": keyTwo} {
		want := twinHeader(key, kid, at, callback)
		got, err := SignPayment(at, callback, keys, kid)
		if err != nil || got != want {
			t.Errorf("SignPayment = %s, %v; want %s", got, err, want)
		}
		if err := VerifyPayment(want, callback, at, 5*time.Minute, keys); err != nil {
			t.Errorf("VerifyPayment under %s: %v", kid, err)
		}
	}
	if _, err := SignPayment(at, callback, keys, "k9"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("unknown kid: %v", err)
	}
}

func TestPaymentWindow(t *testing.T) {
	t.Parallel()
	keys, whole := keySet(t, UsePayment, keyOne), at.Truncate(time.Second)
	header := twinHeader(keyOne, "k1", whole, callback)
	cases := []struct {
		off  time.Duration
		good bool
	}{
		{0, true},
		{5 * time.Minute, true},
		{-5 * time.Minute, true},
		{5*time.Minute + time.Nanosecond, false},
		{-5*time.Minute - time.Nanosecond, false},
		{24 * time.Hour, false},
	}
	for _, c := range cases {
		err := VerifyPayment(header, callback, whole.Add(c.off), 5*time.Minute, keys)
		if (err == nil) != c.good || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s away: %v", c.off, err)
		}
	}
}

func TestForgedPaymentsHaveOneAnswer(t *testing.T) {
	t.Parallel()
	keys := keySet(t, UsePayment, keyOne, keyTwo)
	good := twinHeader(keyOne, "k1", at, callback)
	mac := good[strings.Index(good, "v1="):]
	unix := fmt.Sprintf("t=%d", at.Unix())
	forged := map[string]string{
		"empty":             "",
		"no time":           "kid=k1," + mac,
		"no kid":            unix + "," + mac,
		"no mac":            unix + ",kid=k1",
		"empty mac":         unix + ",kid=k1,v1=",
		"time twice":        unix + "," + unix + ",kid=k1," + mac,
		"mac twice":         good + "," + mac,
		"unknown element":   good + ",v0=00",
		"space":             strings.ReplaceAll(good, ",", ", "),
		"other kid":         strings.Replace(good, "k1", "k2", 1),
		"unknown kid":       strings.Replace(good, "k1", "k9", 1),
		"kid with a slash":  strings.Replace(good, "k1", "../k1", 1),
		"time changed":      strings.Replace(good, unix, fmt.Sprintf("t=%d", at.Unix()+1), 1),
		"time with a zero":  strings.Replace(good, "t=", "t=0", 1),
		"time overflows":    strings.Replace(good, unix, "t=99999999999999999999", 1),
		"time is signed":    strings.Replace(good, "t=", "t=+", 1),
		"mac cut":           good[:len(good)-2],
		"mac half a digit":  good[:len(good)-1],
		"mac not hex":       good[:len(good)-2] + "zz",
		"mac of no key":     strings.Replace(good, mac, "v1="+strings.Repeat("0", 64), 1),
		"eight kilobytes":   good + strings.Repeat("a", 8192),
		"a stranger's key":  twinHeader("another-key-of-16+", "k1", at, callback),
		"mac of other body": twinHeader(keyOne, "k1", at, append([]byte(" "), callback...)),
	}
	for name, header := range forged {
		if err := VerifyPayment(header, callback, at, 5*time.Minute, keys); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := VerifyPayment(good, append(callback[:len(callback):len(callback)], '\n'), at, 5*time.Minute, keys); !errors.Is(err, ErrInvalid) {
		t.Errorf("a line break after the body: %v", err)
	}
	if err := VerifyPayment(mac+",kid=k1,"+unix, callback, at, 5*time.Minute, keys); err != nil {
		t.Errorf("another order of the elements: %v", err)
	}
}

func FuzzVerifyPayment(f *testing.F) {
	f.Add("t=1,kid=k1,v1=00", []byte("{}"))
	f.Add(",,=,", []byte(""))
	keys := keySet(f, UsePayment, keyOne)
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		if err := VerifyPayment(header, body, at, time.Hour, keys); !errors.Is(err, ErrInvalid) {
			t.Fatalf("header %q on %q: %v", header, body, err)
		}
		good, err := SignPayment(at, body, keys, "k1")
		if err != nil {
			t.Fatal(err)
		}
		if err := VerifyPayment(good, body, at, time.Hour, keys); err != nil {
			t.Fatalf("own signature on %q: %v", body, err)
		}
	})
}

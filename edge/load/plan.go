package load

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Plan says how many customers come when, and how they behave.
type Plan struct {
	// Users is how many different customers come; 1 to 10,000,000.
	Users int `json:"users"`
	// Rate is customers per second; 0: all at once, as fast as MaxActive allows.
	Rate float64 `json:"rate"`
	// MaxActive bounds customers under way at one moment [10,000].
	MaxActive int `json:"max_active"`
	// SKUs to ask for; the first gets Skew of all customers, the rest share what is left.
	SKUs []string `json:"skus"`
	Skew float64  `json:"skew"`
	// Scope is the purchase scope key when it is the campaign ("*"); empty: the SKU.
	Scope    string `json:"scope,omitempty"`
	Quantity int    `json:"quantity"`
	Mix      Mix    `json:"mix"`
	Seed     uint64 `json:"seed"`
	// Prefix of user ids, so that two runs are different people.
	Prefix string `json:"prefix"`
	// Patience bounds one customer's whole visit, payment included [2m].
	Patience time.Duration `json:"patience"`
	// GiveUp: a customer who was not accepted within this time starts no further try; 0: never.
	GiveUp time.Duration `json:"give_up,omitempty"`
}

// Mix is how customers behave; fractions of 1.
type Mix struct {
	// Repeat: sends the same request again after its answer.
	Repeat float64 `json:"repeat"`
	// Clash: sends the same request id with another quantity.
	Clash float64 `json:"clash"`
	// Second: tries once more under another request id.
	Second float64 `json:"second"`
	// Press is how often a customer tries again after a sold-out or busy answer.
	Press int `json:"press"`
	// Pay and Cancel: of those who got an order; the rest walk away and let it expire.
	Pay    float64 `json:"pay"`
	Cancel float64 `json:"cancel"`
	// PayTwice: of those who pay, sends the channel's message again.
	PayTwice float64 `json:"pay_twice"`
	// PayDelay: a payer waits up to this long before paying.
	PayDelay time.Duration `json:"pay_delay"`
	// Linger: of those who walk away, comes back to look until the order is closed.
	Linger float64 `json:"linger"`
}

// Check names the first field that breaks a rule.
func (p Plan) Check() error {
	switch {
	case p.Users < 1 || p.Users > 10_000_000:
		return fmt.Errorf("users: %d: must be 1 to 10,000,000", p.Users)
	case p.Rate < 0:
		return fmt.Errorf("rate: %g: must not be negative", p.Rate)
	case len(p.SKUs) == 0:
		return fmt.Errorf("skus: at least one is needed")
	case p.Skew < 0 || p.Skew > 1:
		return fmt.Errorf("skew: %g: must be 0 to 1", p.Skew)
	case p.GiveUp < 0:
		return fmt.Errorf("give_up: %s: must not be negative", p.GiveUp)
	case p.Quantity < 1:
		return fmt.Errorf("quantity: %d: must be at least 1", p.Quantity)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"repeat", p.Mix.Repeat},
		{"clash", p.Mix.Clash},
		{"second", p.Mix.Second},
		{"pay", p.Mix.Pay},
		{"cancel", p.Mix.Cancel},
		{"pay_twice", p.Mix.PayTwice},
		{"linger", p.Mix.Linger},
		{"pay plus cancel", p.Mix.Pay + p.Mix.Cancel},
	} {
		if f.value < 0 || f.value > 1 {
			return fmt.Errorf("mix.%s: %g: must be 0 to 1", f.name, f.value)
		}
	}
	return nil
}

func (p Plan) withDefaults() Plan {
	if p.MaxActive <= 0 {
		p.MaxActive = 10_000
	}
	if p.Patience <= 0 {
		p.Patience = 2 * time.Minute
	}
	if p.Prefix == "" {
		p.Prefix = "user"
	}
	return p
}

// customer is one visit, decided by the seed and the index alone.
type customer struct {
	user, sku, request string
	repeat, clash      bool
	second             bool
	pays, cancels      bool
	payTwice, lingers  bool
	payDelay           time.Duration
	jitter             *rand.Rand
}

func (p Plan) customer(i int) customer {
	r := rand.New(rand.NewPCG(p.Seed, uint64(i)))
	c := customer{
		user: fmt.Sprintf("%s-%d", p.Prefix, i), request: fmt.Sprintf("r-%d-%08x", i, r.Uint32()), sku: p.SKUs[0], jitter: r,
		repeat: r.Float64() < p.Mix.Repeat, clash: r.Float64() < p.Mix.Clash, second: r.Float64() < p.Mix.Second,
		payTwice: r.Float64() < p.Mix.PayTwice, lingers: r.Float64() < p.Mix.Linger,
	}
	if len(p.SKUs) > 1 && r.Float64() >= p.Skew {
		c.sku = p.SKUs[1+r.IntN(len(p.SKUs)-1)]
	}
	fate := r.Float64()
	c.pays, c.cancels = fate < p.Mix.Pay, fate >= p.Mix.Pay && fate < p.Mix.Pay+p.Mix.Cancel
	if p.Mix.PayDelay > 0 {
		c.payDelay = time.Duration(r.Int64N(int64(p.Mix.PayDelay)))
	}
	return c
}

// Profile gives one of the sources' scenarios scaled down: s0 (10,000 units, 1,000,000 requests in
// 1 s), s3 (the same over 10 s, 20 % retries, polling, pressing on), s4 (5,000 units, 200,000 requests
// in 1 s, 2 % repeats, 8 % payment time-outs). scale divides users and rate; 1 is the full size.
func Profile(name string, scale float64) (Plan, error) {
	if scale < 1 {
		return Plan{}, fmt.Errorf("scale: %g: must be at least 1", scale)
	}
	var p Plan
	switch name {
	case "s0":
		p = Plan{Users: 1_000_000, Rate: 1_000_000, Mix: Mix{Pay: 0.9, Repeat: 0.05, PayDelay: 5 * time.Second}}
	case "s3":
		p = Plan{Users: 1_000_000, Rate: 100_000, Mix: Mix{Pay: 0.9, Cancel: 0.02, Repeat: 0.2, Second: 0.02, Press: 2, PayTwice: 0.01, PayDelay: 5 * time.Second}}
	case "s4":
		p = Plan{Users: 200_000, Rate: 200_000, Mix: Mix{Pay: 0.92, Repeat: 0.02, PayDelay: 5 * time.Second}}
	default:
		return Plan{}, fmt.Errorf("profile: %q: must be s0, s3 or s4", name)
	}
	p.Users, p.Rate, p.Quantity = max(1, int(float64(p.Users)/scale)), p.Rate/scale, 1
	return p, nil
}

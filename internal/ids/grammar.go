package ids

import "strconv"

// grammar is one row of the contract's table of ids: the field it is for, how
// many bytes it may have and which ASCII bytes those may be.
type grammar struct {
	field string
	max   int
	set   byteSet
	words string // the set in words, for the error
}

// The table of contract §3. Every id that is plain ASCII is a row here; user ids
// are Unicode and have their own function.
var (
	campaignGrammar  = grammar{"campaign_id", 63, setOf(lower, digits, "-"), "a-z, 0-9 and -"}
	cellGrammar      = grammar{"cell_id", 63, setOf(lower, digits, "-"), "a-z, 0-9 and -"}
	skuGrammar       = grammar{"sku_id", 64, setOf(lower, upper, digits, "._-"), "A-Z, a-z, 0-9, ., _ and -"}
	requestGrammar   = grammar{"request_id", 64, setOf(lower, upper, digits, "_-"), "A-Z, a-z, 0-9, _ and -"}
	operationGrammar = grammar{"operation_id", 128, setOf(lower, upper, digits, "._:-"), "A-Z, a-z, 0-9, ., _, : and -"}
	paymentGrammar   = grammar{"payment_id", 128, setOf(lower, upper, digits, "._:-"), "A-Z, a-z, 0-9, ., _, : and -"}
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// check returns nil when s is one to max bytes of the set, else the *Error that
// says so. It looks at bytes, so a multi-byte rune is always refused.
func (g *grammar) check(s string) error {
	if len(s) < 1 || len(s) > g.max {
		return g.refuse()
	}
	for i := range len(s) {
		if !g.set[s[i]] {
			return g.refuse()
		}
	}
	return nil
}

// parse is check for a typed id: the empty value comes back with every error, so
// that a caller who forgot to look at it cannot use what was refused.
func parse[T ~string](g *grammar, s string) (T, error) {
	if err := g.check(s); err != nil {
		return "", err
	}
	return T(s), nil
}

func (g *grammar) refuse() error {
	return &Error{Field: g.field, Rule: "must be 1 to " + strconv.Itoa(g.max) + " of " + g.words}
}

// byteSet says for each byte whether it belongs.
type byteSet [256]bool

func setOf(alphabets ...string) byteSet {
	var set byteSet
	for _, a := range alphabets {
		for i := range len(a) {
			set[a[i]] = true
		}
	}
	return set
}

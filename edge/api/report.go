package api

// judged are the calls that a judge of risk is told of: what a customer tries, and what comes of his money.
var judged = map[string]bool{
	"claim_permit": true, "request": true, "cancel_order": true, "start_payment": true, "payment_callback": true,
}

// report tells the judge, if there is one, what a call came to.
func (s *Server) report(c *call, name string, rep *reply) {
	if s.parts.Risk == nil || !judged[name] || c.who == nil && c.about.Payment == "" {
		return // nobody of ours called
	}
	e := c.about
	e.At, e.Call, e.Code = c.now, name, rep.code
	if name == "claim_permit" || name == "request" {
		e.Campaign, e.SKU = c.params[0], c.params[1]
	}
	if c.who != nil {
		e.User, e.Device, e.Network, e.Tier = string(c.who.User), c.who.DeviceID, s.parts.Networks.Of(c.r), c.tier
	}
	s.parts.Risk.Offer(e)
}

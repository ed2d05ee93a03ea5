package route

import "time"

// DomainVerdict says whether a customer has a traffic domain in a campaign.
type DomainVerdict uint8

// The verdicts.
const (
	// InDomain: the domain is known.
	InDomain DomainVerdict = iota
	// RegionRequired: the campaign goes by home region and the token has none that it knows, or
	// does not say since when.
	RegionRequired
	// RegionChanged: the home region is younger than the publish; the customer may have bought in
	// his former one (I4).
	RegionChanged
)

// DomainOf is the traffic domain of a customer with that home region since that instant (the zero
// time: not said). Campaigns that do not route by home region ignore both.
func (c *Campaign) DomainOf(region string, since time.Time) (string, DomainVerdict) {
	if !c.HomeRegion {
		return "", InDomain
	}
	if region == "" || since.IsZero() || !c.HasDomain(region) {
		return "", RegionRequired
	}
	if since.After(c.PublishedAt) {
		return "", RegionChanged
	}
	return region, InDomain
}

// Eligible reports whether the customer's claims and risk tier satisfy the campaign. claim returns
// all values of a named claim; none: absent.
func (r *Rules) Eligible(claim func(name string) []string, risk string) bool {
	for _, tier := range r.DenyRisk {
		if tier == risk {
			return false
		}
	}
	for i := range r.Claims {
		if !r.Claims[i].holds(claim) {
			return false
		}
	}
	return true
}

func (c *ClaimRule) holds(claim func(string) []string) bool {
	for _, have := range claim(c.Name) {
		for _, want := range c.Values {
			if have == want {
				return true
			}
		}
	}
	return false
}

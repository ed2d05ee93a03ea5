package limit

// Crowds bound how many calls of one user, of one device and from one network run at once. The user is
// asked first: what he is refused takes no place of those whom he shares device or network with.
type Crowds struct {
	user, device, network *Crowd
}

// NewCrowds returns those bounds; 0: none.
func NewCrowds(user, device, network int) *Crowds {
	return &Crowds{NewCrowd(user), NewCrowd(device), NewCrowd(network)}
}

// Enter takes a caller's places if all are free; whoever got them must Leave.
func (c *Crowds) Enter(who Caller) bool {
	if !c.user.Enter(who.User) {
		return false
	}
	if who.Device != "" && !c.device.Enter(who.Device) {
		c.user.Leave(who.User)
		return false
	}
	if !c.network.Enter(who.Network) {
		c.user.Leave(who.User)
		if who.Device != "" {
			c.device.Leave(who.Device)
		}
		return false
	}
	return true
}

// Leave gives a caller's places back.
func (c *Crowds) Leave(who Caller) {
	c.user.Leave(who.User)
	if who.Device != "" {
		c.device.Leave(who.Device)
	}
	c.network.Leave(who.Network)
}

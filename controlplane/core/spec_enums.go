package core

// Mode says how customers come to their units.
type Mode uint8

// The modes.
const (
	ModeDirect Mode = iota + 1
	ModeLottery
)

var modeNames = []string{"", "DIRECT", "LOTTERY"}

// Modes lists them.
func Modes() []Mode { return all[Mode](modeNames) }

// String is the word of campaign.yaml.
func (m Mode) String() string { return enumText("Mode", modeNames, m) }

// Admission says what admits requests.
type Admission uint8

// The admissions.
const (
	AdmissionMirror Admission = iota + 1
	AdmissionDatabase
)

var admissionNames = []string{"", "MIRROR", "DATABASE"}

// Admissions lists them.
func Admissions() []Admission { return all[Admission](admissionNames) }

// String is the word of campaign.yaml.
func (m Admission) String() string { return enumText("Admission", admissionNames, m) }

// Scope is what "one order per user" counts.
type Scope uint8

// The scopes.
const (
	ScopeSKU Scope = iota + 1
	ScopeCampaign
)

var scopeNames = []string{"", "SKU", "CAMPAIGN"}

// Scopes lists them.
func Scopes() []Scope { return all[Scope](scopeNames) }

// String is the word of campaign.yaml.
func (s Scope) String() string { return enumText("Scope", scopeNames, s) }

// Ack says when 202 is answered.
type Ack uint8

// The acks.
const (
	AckKafka Ack = iota + 1
	AckRedis
)

var ackNames = []string{"", "KAFKA", "REDIS"}

// Acks lists them.
func Acks() []Ack { return all[Ack](ackNames) }

// String is the word of campaign.yaml.
func (a Ack) String() string { return enumText("Ack", ackNames, a) }

// Refund says whether a refund returns its unit.
type Refund uint8

// The refund rules.
const (
	RefundNoRestock Refund = iota + 1
	RefundRestock
)

var refundNames = []string{"", "NO_RESTOCK", "RESTOCK"}

// Refunds lists them.
func Refunds() []Refund { return all[Refund](refundNames) }

// String is the word of campaign.yaml.
func (r Refund) String() string { return enumText("Refund", refundNames, r) }

// LeaseLoss says what a cell does without the control plane.
type LeaseLoss uint8

// The choices.
const (
	LeaseLossContinue LeaseLoss = iota + 1
	LeaseLossPause
)

var leaseLossNames = []string{"", "CONTINUE", "PAUSE"}

// LeaseLosses lists them.
func LeaseLosses() []LeaseLoss { return all[LeaseLoss](leaseLossNames) }

// String is the word of campaign.yaml.
func (l LeaseLoss) String() string { return enumText("LeaseLoss", leaseLossNames, l) }

// Reclaim says whether a fenced cell's sealed units may be given to others.
type Reclaim uint8

// The choices.
const (
	ReclaimManual Reclaim = iota + 1
	ReclaimNever
)

var reclaimNames = []string{"", "MANUAL", "NEVER"}

// Reclaims lists them.
func Reclaims() []Reclaim { return all[Reclaim](reclaimNames) }

// String is the word of campaign.yaml.
func (r Reclaim) String() string { return enumText("Reclaim", reclaimNames, r) }

// Routing says what a traffic domain is.
type Routing uint8

// The routings.
const (
	RoutingUser Routing = iota + 1
	RoutingHomeRegion
)

var routingNames = []string{"", "USER", "HOME_REGION"}

// Routings lists them.
func Routings() []Routing { return all[Routing](routingNames) }

// String is the word of campaign.yaml.
func (r Routing) String() string { return enumText("Routing", routingNames, r) }

// Inventory is how a SKU's units are kept.
type Inventory uint8

// The inventories.
const (
	InventoryCounter Inventory = iota + 1
	InventoryToken
)

var inventoryNames = []string{"", "COUNTER", "TOKEN"}

// Inventories lists them.
func Inventories() []Inventory { return all[Inventory](inventoryNames) }

// String is the word of campaign.yaml.
func (i Inventory) String() string { return enumText("Inventory", inventoryNames, i) }

// Auto says who acts.
type Auto uint8

// The choices.
const (
	AutoManual Auto = iota + 1
	AutoAuto
)

var autoNames = []string{"", "MANUAL", "AUTO"}

// Autos lists them.
func Autos() []Auto { return all[Auto](autoNames) }

// String is the word of campaign.yaml.
func (a Auto) String() string { return enumText("Auto", autoNames, a) }

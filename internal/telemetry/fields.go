package telemetry

// Names of log fields: the core fields of the outside contract, section 7, and
// nothing else. Scripts and dashboards select by them.
const (
	Event          = "event"
	TraceID        = "trace_id"
	SpanID         = "span_id"
	CampaignID     = "campaign_id"
	SKUID          = "sku_id"
	UserID         = "user_id"
	RequestID      = "request_id"
	ReservationID  = "reservation_id"
	EventID        = "event_id"
	OrderID        = "order_id"
	PaymentID      = "payment_id"
	TokenID        = "token_id"
	AdjustmentID   = "adjustment_id"
	CompensationID = "compensation_id"
	CellID         = "cell_id"
	FenceVersion   = "fence_version"
	OldState       = "old_state"
	NewState       = "new_state"
	ErrorClass     = "error_class"
	Retryable      = "retryable"
	RetryCount     = "retry_count"
	ConsumerGroup  = "consumer_group"
	Topic          = "topic"
	Partition      = "partition"
	Offset         = "offset"
)

// Names of the fields that frame a line.
const (
	Component = "component"
	Error     = "error"
)

// Names of the fields that say which long operation of the control plane a line or a
// span belongs to.
const (
	Operation   = "operation" // its kind
	OperationID = "operation_id"
	Step        = "step" // where it stands
)

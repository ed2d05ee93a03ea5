package events

import (
	"strconv"

	"github.com/cellquota/cellquota/internal/ids"
)

// Event types, as they stand in the header event_type and in outbox rows.
const (
	TypeAdmission       = "admission"
	TypeBarrier         = "barrier"
	TypeMirrorEffect    = "mirror-effect" // outbox target MIRROR only; never in Kafka
	TypeOrderCreated    = "order-created"
	TypeOrderPaid       = "order-paid"
	TypeOrderClosed     = "order-closed"
	TypeRefundRequested = "refund-requested"
	TypeRefundCompleted = "refund-completed"
)

// OrderEventsTopic carries what happened to orders, of all cells, for others.
const OrderEventsTopic = "cellquota.events"

const admissionsTopicPrefix = "cellquota.admissions."

// AdmissionsTopic is the topic of one cell's admissions and barriers. Cells never
// create it; provisioning does.
func AdmissionsTopic(cell ids.CellID) string { return admissionsTopicPrefix + string(cell) }

// Partition is where every admission of a SKU goes, from 0 to n − 1, so that its
// stock row has one writer. n is the topic's partition count, at least 1.
func Partition(campaign ids.CampaignID, sku ids.SKUID, n int) int32 {
	return ids.Partition(campaign, sku, n)
}

// ClientID is the Kafka client id of one part of a cell: broker quotas and ACLs
// apply per cell by it.
func ClientID(cell ids.CellID, part string) string { return "cellquota." + string(cell) + "." + part }

// GroupID is the consumer group that hands out the partitions of a cell's topic.
func GroupID(cell ids.CellID) string { return "cellquota." + string(cell) + ".orders" }

// BarrierID is the event id of one partition's barrier of a mirror's build.
func BarrierID(campaign ids.CampaignID, sku ids.SKUID, build ids.Build, partition int32) string {
	return "barrier-" + string(campaign) + "/" + string(sku) + "-" + build.String() + "-" + strconv.Itoa(int(partition))
}

// OutboxEventID is the event id of an outbox row in cellquota.events; the same on
// every delivery.
func OutboxEventID(cell ids.CellID, row int64) string {
	return "outbox-" + string(cell) + "-" + strconv.FormatInt(row, 10)
}

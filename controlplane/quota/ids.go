package quota

// Ids of the adjustments that an operation makes. A transfer's keep the caller's
// prefix, so that `quota history` shows them side by side.

// ReturnID names the return of a transfer, in journal and shard.
func ReturnID(transfer string) string { return transfer + ".return" }

// GrantID names the grant of a transfer.
func GrantID(transfer string) string { return transfer + ".grant" }

package telemetry

// Unclassified is the error_class of an error that no table of the process names.
const Unclassified = "INTERNAL"

// Failure gives the fields of a line that tells of a failure: error, error_class and
// retryable. class is the word by which the error travels to callers (rpcstatus.Reason),
// "" for none; retryable says that this process tries again by itself.
func Failure(err error, class string, retryable bool) []any {
	if class == "" {
		class = Unclassified
	}
	return []any{Error, err, ErrorClass, class, Retryable, retryable}
}

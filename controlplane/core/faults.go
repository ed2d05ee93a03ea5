package core

import (
	"errors"

	"github.com/cellquota/cellquota/allocator"
	"github.com/cellquota/cellquota/internal/ids"
	"github.com/cellquota/cellquota/internal/rpcstatus"
)

// invalid is rpcstatus.ErrInvalidArgument with one violation.
func invalid(field, rule string) error {
	return rpcstatus.Invalid(rpcstatus.Violation{Field: field, Rule: rule})
}

// Invalid turns refusals of ids and allocator into one error with a violation
// for each; nil where none is left. A refusal of another kind passes unchanged.
func Invalid(errs ...error) error {
	var found []rpcstatus.Violation
	for _, err := range errs {
		if err == nil {
			continue
		}
		var id *ids.Error
		var plan *allocator.Error
		if !errors.As(err, &id) && !errors.As(err, &plan) {
			return err
		}
		found = append(found, violation(err))
	}
	return rpcstatus.Invalid(found...)
}

func violation(err error) rpcstatus.Violation {
	var id *ids.Error
	if errors.As(err, &id) {
		return rpcstatus.Violation{Field: id.Field, Rule: id.Rule}
	}
	var plan *allocator.Error
	if errors.As(err, &plan) {
		rule := plan.Rule.Error()
		if plan.Got != "" {
			rule += ", got " + plan.Got
		}
		return rpcstatus.Violation{Field: plan.Field, Rule: rule}
	}
	return rpcstatus.Violation{Rule: err.Error()}
}

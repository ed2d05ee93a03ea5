package core

import "fmt"

// Every enum of this package has the numbers of its namesake in cellquota.v1 and
// the names without their prefix: convert's test compares them one by one. Zero
// is never a valid value.

func enumText[T ~uint8](kind string, names []string, v T) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

func known[T ~uint8](names []string, v T) bool { return int(v) < len(names) && names[v] != "" }

func all[T ~uint8](names []string) []T {
	var out []T
	for i, n := range names {
		if n != "" {
			out = append(out, T(i))
		}
	}
	return out
}

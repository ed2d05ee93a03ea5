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

// ParseEnum finds the value of a list by its name.
func ParseEnum[T interface {
	~uint8
	String() string
}](all []T, name string,
) (T, bool) {
	for _, v := range all {
		if v.String() == name {
			return v, true
		}
	}
	return 0, false
}

func all[T ~uint8](names []string) []T {
	var out []T
	for i, n := range names {
		if n != "" {
			out = append(out, T(i))
		}
	}
	return out
}

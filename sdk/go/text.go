package controller

import "strconv"

// ParseNumber parses a whole number that consists of digits only, such as those in annotations.
func ParseNumber(text string) (int64, bool) {
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0, false
		}
	}
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil
}

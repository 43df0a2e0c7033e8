package options

import (
	"fmt"
	"strings"
	"unicode"
)

// TextRule selects how texts are normalized.
type TextRule string

// LowerAlphanumeric puts texts in lower case and removes characters that are no letters, digits,
// underscores or white space.
const LowerAlphanumeric TextRule = "lower_alphanumeric"

// Apply returns the normalized text. The empty rule returns it unchanged.
func (r TextRule) Apply(text string) string {
	if r != LowerAlphanumeric {
		return text
	}
	return strings.Map(func(c rune) rune {
		isSeparator := 0x1c <= c && c <= 0x1f // white space in Python, not in Go
		if unicode.IsLetter(c) || unicode.IsNumber(c) || c == '_' || unicode.IsSpace(c) ||
			isSeparator {
			return unicode.ToLower(c)
		}
		return -1
	}, text)
}

// checkText rejects unknown rules.
func (w *Windows) checkText() error {
	for _, key := range Keys(w.Text) {
		if w.Text[key] != LowerAlphanumeric {
			return Misuse("text of "+key, fmt.Sprintf("%q", LowerAlphanumeric), string(w.Text[key]))
		}
	}
	return nil
}

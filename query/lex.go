package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
)

const (
	maxTextBytes = 4096
	maxDepth     = 200
)

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	endToken tokenKind = iota
	nameToken
	wordToken // a reserved word
	numberToken
	durationToken
	textToken // in quotes
	symbolToken
)

// token is a part of an expression. text has no quotes.
type token struct {
	kind  tokenKind
	text  string
	value float64 // of a number; of a duration in seconds
	at    int     // character, from 1
}

// reservedWords cannot be names outside quotes.
var reservedWords = []string{"or", "and", "not", "while", "then", "within", "for"}

// durationUnits maps the units of durations to seconds.
var durationUnits = map[string]float64{"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60}

// symbols lists the operators. A symbol precedes those that are its prefix.
var symbols = []string{
	"<=", ">=", "==", "!=", "&&", "||", "<", ">", "(", ")", "[", "]", ",", "+", "-", "*", "/",
}

// syntaxError returns an ErrMisuse about the character at of an expression.
func syntaxError(at int, format string, args ...any) *robocache.Error {
	return robocache.Misuse("find", nil,
		"expression, character %d: %s", at, fmt.Sprintf(format, args...)).
		WithHint("Such as: length < 30 or max(action[gripper]) > 1.2; falling(gripper) while " +
			"z > 0.2. Put texts, and keys with other characters, in quotes.")
}

// splitTokens splits an expression into tokens. The last one is an endToken.
func splitTokens(text string) (out []token, err error) {
	if len(text) > maxTextBytes {
		return nil, robocache.Misuse("find", nil, "an expression of more than %d bytes",
			maxTextBytes)
	}
	for at := 1; ; {
		rest := strings.TrimLeftFunc(text, unicode.IsSpace)
		at += utf8.RuneCountInString(text[:len(text)-len(rest)])
		if rest == "" {
			return append(out, token{kind: endToken, text: "the end", at: at}), nil
		}
		t, size, err := nextToken(rest, at)
		if err != nil {
			return nil, err
		}
		t.at = at
		out = append(out, t)
		at += utf8.RuneCountInString(rest[:size])
		text = rest[size:]
	}
}

// nextToken returns the token at the beginning of text and its size in bytes.
func nextToken(text string, at int) (token, int, error) {
	first, _ := utf8.DecodeRuneInString(text)
	switch {
	case first == '\'' || first == '"':
		end := strings.IndexRune(text[1:], first)
		if end < 0 {
			return token{}, 0, syntaxError(at, "the quote is not closed")
		}
		return token{kind: textToken, text: text[1 : 1+end]}, end + 2, nil
	case unicode.IsDigit(first) || first == '.':
		return numberAt(text, at)
	case unicode.IsLetter(first) || first == '_':
		size := len(text) - len(strings.TrimLeftFunc(text, isNameRune))
		t := token{kind: nameToken, text: text[:size]}
		if slices.Contains(reservedWords, t.text) {
			t.kind = wordToken
		}
		return t, size, nil
	}
	for _, s := range symbols {
		if strings.HasPrefix(text, s) {
			return token{kind: symbolToken, text: s}, len(s), nil
		}
	}
	return token{}, 0, syntaxError(at, "unexpected %q", first)
}

// isNameRune reports whether a name may contain r.
func isNameRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '.' || r == '@'
}

// numberAt returns the number, or the duration, at the beginning of text.
func numberAt(text string, at int) (token, int, error) {
	size := 0
	for size < len(text) {
		c := text[size]
		isExponent := (c == 'e' || c == 'E') && size+1 < len(text) &&
			strings.ContainsRune("+-0123456789", rune(text[size+1]))
		switch {
		case c >= '0' && c <= '9' || c == '.':
			size++
		case isExponent:
			size += 2
		default:
			return numberOf(text, size, at)
		}
	}
	return numberOf(text, size, at)
}

// numberOf returns the number in the first size bytes of text, with the unit that may follow.
func numberOf(text string, size, at int) (token, int, error) {
	value, err := strconv.ParseFloat(text[:size], 64)
	if err != nil {
		return token{}, 0, syntaxError(at, "%q is not a number of 64 bits", text[:size])
	}
	t := token{kind: numberToken, text: text[:size], value: value}
	unit := text[size : len(text)-len(strings.TrimLeftFunc(text[size:], isNameRune))]
	if unit == "" {
		return t, size, nil
	}
	factor, ok := durationUnits[unit]
	if !ok {
		return token{}, 0, syntaxError(at, "%q is neither a number nor a duration such as 0.5s",
			text[:size+len(unit)])
	}
	return token{kind: durationToken, text: text[:size+len(unit)], value: value * factor},
		size + len(unit), nil
}

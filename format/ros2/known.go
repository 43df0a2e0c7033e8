package ros2

import (
	_ "embed"
	"strings"
	"sync"
)

//go:generate sh -c "../../.venv/bin/python ../../scripts/ros2-known.py > known.txt"

// knownText holds the .msg texts of the common types, because recordings in SQLite before Iron
// store none.
//
//go:embed known.txt
var knownText string

// knownTexts returns the texts of the common types by short name.
var knownTexts = sync.OnceValue(func() map[string]string {
	names, texts := splitBlocks("", knownText, "MSG:")
	out := make(map[string]string, len(names))
	for k, n := range names {
		if n != "" {
			out[shortKey(n)] = strings.TrimSpace(texts[k]) + "\n"
		}
	}
	return out
})

var knownSchemas sync.Map // short name → *Schema

// KnownSchema returns the schema of a common type, for recordings that store none.
func KnownSchema(name string) (*Schema, bool) {
	short := shortKey(name)
	if s, ok := knownSchemas.Load(short); ok {
		return s.(*Schema), true
	}
	text, ok := commonText(short)
	if !ok {
		return nil, false
	}
	root := parseMembers(short, text)
	s := newSchema(short, root, map[string]*message{short: root})
	knownSchemas.Store(short, s)
	return s, true
}

// commonText returns the text of a common type without its dependencies.
func commonText(short string) (string, bool) {
	if short == foxgloveVideo {
		return foxgloveVideoText, true
	}
	text, ok := knownTexts()[short]
	return text, ok
}

// SchemaText returns the ros2msg text of a common type with all its dependencies, as in an MCAP
// schema.
func SchemaText(name string) (string, bool) {
	s, ok := KnownSchema(name)
	if !ok {
		return "", false
	}
	var b strings.Builder
	text, _ := commonText(shortKey(name))
	b.WriteString(text)
	done := map[string]bool{}
	var add func(m *message)
	add = func(m *message) {
		for k := range m.members {
			d := m.members[k].msg
			if d == nil || done[d.name] {
				continue
			}
			done[d.name] = true
			b.WriteString(strings.Repeat("=", 80) + "\nMSG: " + shortKey(d.name) + "\n" +
				knownTexts()[shortKey(d.name)])
			add(d)
		}
	}
	add(s.root)
	return b.String(), true
}

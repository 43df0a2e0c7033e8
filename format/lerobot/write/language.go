package write

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
)

// Keys of the language columns.
const (
	// LanguagePersistent holds, in each row, the texts of the episode and the times from which they
	// are active.
	LanguagePersistent = "language_persistent"
	// LanguageEvents holds the texts of the row.
	LanguageEvents = "language_events"
)

// languageColumn returns the column of one of lerobot's two language features. Its type is
// LIST<struct{role, content, style[, timestamp], camera, tool_calls}>.
func languageColumn(key string) (outColumn, error) {
	if key != LanguagePersistent && key != LanguageEvents {
		return outColumn{}, unsupported(
			key,
			"lerobot has two event columns, language_persistent and language_events",
		)
	}
	var names []string
	var nodes []parquet.Node
	var fields []pqw.Arrow
	add := func(name string, n parquet.Node, a pqw.Arrow) {
		names = append(names, name)
		nodes = append(nodes, parquet.Optional(n))
		a.Name = name
		fields = append(fields, a)
	}
	var hf []string
	for _, name := range languageFields {
		d := robocache.String
		if name == "timestamp" {
			d = robocache.Float32
		}
		if name == "timestamp" && key == LanguageEvents {
			continue
		}
		hf = append(hf, fmt.Sprintf(`%q: {"dtype": %q, "_type": "Value"}`, name, d))
		leaf, arrowType := leafOf(d)
		add(name, leaf, pqw.Arrow{Type: arrowType})
	}
	add(
		"tool_calls",
		parquet.List(parquet.Optional(plainEncoded(parquet.String()))),
		pqw.Arrow{Type: pqw.ArrowList, Children: []pqw.Arrow{
			{
				Name: "element",
				Type: pqw.ArrowText,
				Meta: [][2]string{
					{"ARROW:extension:metadata", ""},
					{"ARROW:extension:name", "arrow.json"},
				},
			},
		}},
	)
	item := pqw.Arrow{Name: "element", Type: pqw.ArrowStruct, Children: fields}
	return outColumn{
		name:  key,
		node:  parquet.Optional(parquet.List(parquet.Optional(pqw.Group(names, nodes)))),
		field: pqw.Arrow{Name: key, Type: pqw.ArrowList, Children: []pqw.Arrow{item}},
		hf: json.RawMessage(
			`{"feature": {` + strings.Join(hf, ", ") +
				`, "tool_calls": {"feature": {"_type": "Json"}, "_type": "List"}}, "_type": "List"}`,
		),
	}, nil
}

// languageFields lists the fields of an element before its tool calls. Events have no timestamp.
var languageFields = []string{"role", "content", "style", "timestamp", "camera"}

// LanguageItem is an element of a language column. A nil field is null.
type LanguageItem struct {
	Role    *string `json:"role"`
	Content *string `json:"content"`
	Style   *string `json:"style"`
	// Timestamp is in seconds from the start of the episode; nil in LanguageEvents.
	Timestamp *float64          `json:"timestamp,omitempty"`
	Camera    *string           `json:"camera"`
	ToolCalls []json.RawMessage `json:"tool_calls"`
}

// ActiveText returns the content of the item of a style with the last timestamp up to a time in
// seconds, or "". Timestamps are float32 in the files.
func ActiveText(items []LanguageItem, style string, seconds float64) (text string) {
	var last float32
	isFound := false
	for _, x := range items {
		if x.Style == nil || *x.Style != style || x.Timestamp == nil {
			continue
		}
		from := float32(*x.Timestamp)
		if from > float32(seconds) || isFound && from < last {
			continue
		}
		last, isFound, text = from, true, ""
		if x.Content != nil {
			text = *x.Content
		}
	}
	return text
}

// languageLeaves adds JSON rows to the leaves of a language column: role, content, style,
// [timestamp,] camera, tool_calls.
func languageLeaves(key string, leaves []*pqw.Values, rows []string) error {
	for i, row := range rows {
		var items []LanguageItem
		if row != "" {
			if err := json.NewDecoder(strings.NewReader(row)).Decode(&items); err != nil {
				return robocache.Malformed(
					"write lerobot",
					robocache.Where{"stream": key, "index": i},
					"",
				).Expected("a JSON list of objects", clipText(row)).
					WithCause(err)
			}
		}
		if len(items) == 0 {
			for _, leaf := range leaves {
				leaf.Null(newRow, emptyList)
			}
			continue
		}
		for k := range items {
			addLanguageItem(key, leaves, &items[k], k > 0)
		}
	}
	return nil
}

// Levels of the leaves of a language column.
const (
	newRow     = 0 // repetition: the first value of a row
	sameRow    = 1 // repetition: the next item of a row
	sameItem   = 2 // repetition: the next tool call of an item
	emptyList  = 1 // definition: the row has an empty list
	itemLevel  = 3 // definition: the item exists, its field is null
	fieldLevel = 4 // definition: the field exists; a list in it is empty
	callLevel  = 6 // definition: a tool call exists
)

// addLanguageItem adds an item of a row to the leaves. continues reports whether the row has an
// earlier item.
func addLanguageItem(key string, leaves []*pqw.Values, it *LanguageItem, continues bool) {
	repetition := newRow
	if continues {
		repetition = sameRow
	}
	next := 0
	nextLeaf := func() *pqw.Values {
		next++
		return leaves[next-1]
	}
	addText := func(s *string) {
		leaf := nextLeaf()
		if s == nil {
			leaf.Null(repetition, itemLevel)
		} else {
			leaf.Text(*s, repetition, fieldLevel)
		}
	}
	addText(it.Role)
	addText(it.Content)
	addText(it.Style)
	if key == LanguagePersistent {
		leaf := nextLeaf()
		if it.Timestamp == nil || math.IsNaN(*it.Timestamp) {
			leaf.Null(repetition, itemLevel)
		} else {
			bits := math.Float32bits(float32(*it.Timestamp))
			leaf.Add(binary.LittleEndian.AppendUint32(nil, bits), repetition, fieldLevel)
		}
	}
	addText(it.Camera)
	calls := nextLeaf()
	switch {
	case it.ToolCalls == nil:
		calls.Null(repetition, itemLevel)
	case len(it.ToolCalls) == 0:
		calls.Null(repetition, fieldLevel)
	default:
		for j, call := range it.ToolCalls {
			if j > 0 {
				repetition = sameItem
			}
			calls.Add(call, repetition, callLevel)
		}
	}
}

// clipText returns s, shortened to 80 bytes.
func clipText(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

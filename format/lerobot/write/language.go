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

const (
	languagePersistent = "language_persistent"
	languageEvents     = "language_events"
)

// languageColumn returns the column of one of lerobot's two language features. Its type is
// LIST<struct{role, content, style[, timestamp], camera, tool_calls}>.
func languageColumn(key string) (outColumn, error) {
	if key != languagePersistent && key != languageEvents {
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
		if name == "timestamp" && key == languageEvents {
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

// languageItem is an element of a language column. A nil field is null.
type languageItem struct {
	Role      *string           `json:"role"`
	Content   *string           `json:"content"`
	Style     *string           `json:"style"`
	Timestamp *float64          `json:"timestamp"`
	Camera    *string           `json:"camera"`
	ToolCalls []json.RawMessage `json:"tool_calls"`
}

// languageLeaves adds JSON rows to the leaves of a language column: role, content, style,
// [timestamp,] camera, tool_calls.
func languageLeaves(key string, leaves []*pqw.Values, rows []string) error {
	for i, row := range rows {
		var items []languageItem
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
func addLanguageItem(key string, leaves []*pqw.Values, it *languageItem, continues bool) {
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
	if key == languagePersistent {
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

package robocache

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
)

// Words writes options and commands in the words of one surface: the command line, Python or Go.
type Words struct {
	// Option writes an option with its value, which is nil if the user has to choose it. Keys lead
	// into an option that is a table.
	Option func(name string, keys []string, value any) string
	// Command writes a line of the command line, without the name of the program.
	Command func(line string) string
}

var words atomic.Pointer[Words]

// SetWords sets the words of the hints that are made from now on, in the whole process. The command
// line and the C library call it at start. The default is GoWords.
func SetWords(w Words) { words.Store(&w) }

func currentWords() *Words {
	if w := words.Load(); w != nil {
		return w
	}
	return &GoWords
}

// Option returns the words for an option in a hint, as the user of this process passes it:
// missing="pad" in Python, Missing: "pad" in Go, a flag on the command line. name is Python's. The
// last of path is the value, those before it are keys of a table: Option("options", "clock",
// "log"). Without path the user has to choose the value. Call Option when the hint is made: the
// words of a package variable are always those of Go.
func Option(name string, path ...any) string {
	if len(path) == 0 {
		return currentWords().Option(name, nil, nil)
	}
	keys := make([]string, len(path)-1)
	for i := range keys {
		keys[i] = fmt.Sprint(path[i])
	}
	return currentWords().Option(name, keys, path[len(path)-1])
}

// Command returns the words for a command in a hint: 'robocache doctor --fix' on the command line,
// robocache.doctor(…, fix=True) in Python. line is the command line without the name of the
// program, as in fmt.Sprintf. Words in capitals stand for what the user has to give; values follow
// their flag after "=".
func Command(line string, args ...any) string {
	return currentWords().Command(fmt.Sprintf(line, args...))
}

// SkipBadEpisodes returns the words for leaving bad episodes out, in hints of code that both a
// Loader and a conversion use.
func SkipBadEpisodes() string { return Option("skip_bad_episodes") }

// GoWords writes options as fields of the Go API.
var GoWords = Words{
	Option: func(name string, keys []string, value any) string {
		field, ok := goFields[name]
		if !ok {
			field = goField(name)
		}
		if value == nil && len(keys) == 0 {
			return field
		}
		if name == "stats" && value == "compute" {
			return "ComputeStats: true"
		}
		if name == "align" && value == "causal" {
			keys, value = []string{"causal"}, true
		}
		text := jsonText(value)
		for i := len(keys) - 1; i >= 0; i-- {
			key := jsonText(keys[i])
			if i == 0 && (name == "align" || name == "follow") {
				key = goField(keys[i])
			}
			text = "{" + key + ": " + text + "}"
		}
		return field + ": " + text
	},
	Command: func(line string) string { return "'robocache " + line + "'" },
}

// goFields are the fields of options whose name is not that of Python.
var goFields = map[string]string{
	"rows_hz":           "OpenOptions.HZ",
	"skip_bad_episodes": `OnBadEpisode: "skip"`,
	"on_nan":            "OnNaN",
	"image_dtype":       "ImageDType",
	"delta_timestamps":  "Deltas",
	"delta_indices":     "Indices",
	"windows":           "Native",

	"image_transform":      "Transform",
	"deadline_s":           "Deadline",
	"device_memory_budget": "DeviceMemory",
	"drop_n_first_frames":  "DropFirst",
	"drop_n_last_frames":   "DropTail",
	"dtype":                "DType",
	"io_threads":           "IOThreads",
	"offset_tolerance_s":   "OffsetTolerance",
	"refresh":              "RefreshStats",
	"tolerance_s":          "Tolerance",
}

// goField returns the field of an option: max_gap is MaxGap.
func goField(name string) string {
	var b strings.Builder
	for _, part := range strings.Split(name, "_") {
		if part == "hz" {
			part = "HZ"
		}
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// jsonText writes a value as JSON, without escapes for HTML.
func jsonText(v any) string {
	if list, ok := v.([]string); ok {
		texts := make([]string, len(list))
		for i, text := range list {
			texts[i] = jsonText(text)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

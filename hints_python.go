package robocache

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// PythonWords writes options as keywords and commands as calls of the Python package.
var PythonWords = Words{Option: pythonOption, Command: pythonCommand}

// pythonField is the place of an option in the Python package: a field of a group.
type pythonField struct {
	keyword, group, field string
}

// pythonFields are the options that are fields of groups in Python. python/tests/test_hints.py
// compares them with the groups. robocache.open and the verbs take the options of opening as
// keywords: pythonOpening has those.
var pythonFields = map[string]pythonField{
	"delta_indices":        {"windows", "Windows", "rows"},
	"windows":              {"windows", "Windows", "seconds"},
	"anchor":               {"windows", "Windows", "anchor"},
	"tolerance_s":          {"windows", "Windows", "tolerance_s"},
	"missing":              {"windows", "Windows", "missing"},
	"dtype":                {"windows", "Windows", "dtype"},
	"beyond":               {"windows", "Windows", "beyond"},
	"text":                 {"windows", "Windows", "text"},
	"choose":               {"windows", "Windows", "choose"},
	"goal":                 {"windows", "Windows", "goal"},
	"image_dtype":          {"images", "Images", "dtype"},
	"image_resize":         {"images", "Images", "fit"},
	"image_filter":         {"images", "Images", "filter"},
	"image_layout":         {"images", "Images", "layout"},
	"image_transform":      {"images", "Images", "transform"},
	"depth_unit":           {"images", "Images", "depth_unit"},
	"pool_size":            {"order", "Order", "pool_size"},
	"pool_episodes":        {"order", "Order", "pool_episodes"},
	"pool_shards":          {"order", "Order", "pool_shards"},
	"uneven":               {"order", "Order", "uneven"},
	"drop_n_first_frames":  {"order", "Order", "drop_n_first_frames"},
	"drop_n_last_frames":   {"order", "Order", "drop_n_last_frames"},
	"pad_before":           {"order", "Order", "pad_before"},
	"pad_after":            {"order", "Order", "pad_after"},
	"segments":             {"order", "Order", "segments"},
	"require_text":         {"order", "Order", "require_text"},
	"episode_weights":      {"order", "Order", "episode_weights"},
	"weight_by":            {"order", "Order", "weight_by"},
	"on_bad_episode":       {"order", "Order", "on_bad_episode"},
	"on_nan":               {"order", "Order", "on_nan"},
	"temperature":          {"mixture", "Mixture", "temperature"},
	"stop":                 {"mixture", "Mixture", "stop"},
	"epoch_size":           {"mixture", "Mixture", "epoch_size"},
	"stratified":           {"mixture", "Mixture", "stratified"},
	"balance_weights":      {"mixture", "Mixture", "balance_weights"},
	"cache_budget":         {"cache", "Cache", "budget"},
	"cache_format":         {"cache", "Cache", "format"},
	"pin_memory":           {"device", "Device", "pin_memory"},
	"decode":               {"device", "Device", "decode"},
	"device_memory_budget": {"device", "Device", "memory_budget"},
	"compute_stats":        {"statistics", "Statistics", "compute"},
	"stats":                {"statistics", "Statistics", "values"},
	"refresh":              {"statistics", "Statistics", "refresh"},
	"prefetch":             {"runtime", "Runtime", "prefetch"},
	"io_threads":           {"runtime", "Runtime", "io_threads"},
	"deadline_s":           {"runtime", "Runtime", "deadline_s"},
	"metrics":              {"runtime", "Runtime", "metrics"},
}

// pythonOpening are the keywords of robocache.open and of verbs that a Loader takes in a group.
var pythonOpening = []string{
	"format",
	"rows_hz",
	"map",
	"options",
	"follow_links",
	"recording_index",
}

// pythonFirst are the first arguments of groups that need one.
var pythonFirst = map[string]string{"Cache": "…, ", "Device": `"cuda", `}

// pythonOthers are the required entries of augmentations that a hint does not name.
var pythonOthers = map[string]string{
	"hflip":       `"p": …, `,
	"random_crop": `"size": …, "pad": …, `,
}

func pythonOption(name string, keys []string, value any) string {
	switch {
	case name == "skip_bad_episodes":
		return pythonOption("on_bad_episode", nil, "skip") + " (skip_bad=True of convert and stats)"
	case name == "stats" && len(keys) == 0 && value == "compute":
		return pythonOption("compute_stats", nil, true)
	case name == "align" && len(keys) == 0 && value == "causal":
		return `align="causal"`
	case name == "align" && (len(keys) > 0 || value != nil):
		return "align=robocache.Align(" + groupFields(keys, value) + ")"
	case name == "follow" && len(keys) > 0:
		return "follow=robocache.Follow(" + groupFields(keys, value) + ")"
	case name == "augment" && (len(keys) > 0 || value != nil):
		text := groupFields(keys, value)
		if len(keys) > 1 {
			text = strings.Replace(text, "{", "{"+pythonOthers[keys[0]], 1)
		}
		return "augment=robocache.Augment(" + text + ")"
	case name == "as": // of edit, a keyword of Python
		name = "to"
	case name == "offset_tolerance_s": // of LeRobotDataset
		return "tolerance_s=" + strings.TrimSuffix(pythonDict(keys, value), "…")
	}
	place, grouped := pythonFields[name]
	if value == nil && len(keys) == 0 && !grouped {
		return name + "="
	}
	text := pythonDict(keys, value)
	if slices.Contains(pythonOpening, name) {
		text = name + "=" + text
		return text + " (open=robocache.Open(" + text + ") of a Loader)"
	}
	if !grouped {
		return name + "=" + text
	}
	arguments := pythonFirst[place.group] + place.field + "=" + text
	return place.keyword + "=robocache." + place.group + "(" + arguments + ")"
}

// groupFields writes the configuration of a nested group, or a part of one, as arguments of the
// group in Python.
func groupFields(keys []string, value any) string {
	if len(keys) > 0 {
		return keys[0] + "=" + pythonDict(keys[1:], value)
	}
	b, err := json.Marshal(value)
	var fields map[string]any
	if err != nil || json.Unmarshal(b, &fields) != nil {
		return "**" + pythonText(value)
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		texts = append(texts, name+"="+pythonText(fields[name]))
	}
	return strings.Join(texts, ", ")
}

// pythonDict writes a value below keys as nested dicts of Python.
func pythonDict(keys []string, value any) string {
	text := pythonText(value)
	for i := len(keys) - 1; i >= 0; i-- {
		text = "{" + pythonText(keys[i]) + ": " + text + "}"
	}
	return text
}

// pythonCalls are the commands that are functions of the Python package.
var pythonCalls = []string{
	"inspect",
	"doctor",
	"causality",
	"index",
	"find",
	"embed",
	"quality",
	"diff",
	"convert",
	"stats",
	"pull",
	"push",
	"edit",
}

func pythonCommand(line string) string {
	all := strings.Fields(line)
	if !slices.Contains(pythonCalls, all[0]) {
		return GoWords.Command(line)
	}
	name, rest := all[0], all[1:]
	if name == "edit" {
		name, rest = "edit."+strings.ReplaceAll(all[1], "-", "_"), all[2:]
	}
	var args, keywords []string
	for _, word := range rest {
		flag, isFlag := strings.CutPrefix(word, "--")
		key, value, hasValue := strings.Cut(flag, "=")
		switch {
		case !isFlag && word == strings.ToUpper(word):
			args = append(args, word)
		case !isFlag:
			args = append(args, pythonText(word))
		case hasValue && value == strings.ToUpper(value) && value != strings.ToLower(value):
			keywords = append(keywords, strings.ReplaceAll(key, "-", "_")+"="+value)
		case !hasValue:
			keywords = append(keywords, strings.ReplaceAll(key, "-", "_")+"=True")
		case json.Valid([]byte(value)):
			keywords = append(keywords, strings.ReplaceAll(key, "-", "_")+"="+value)
		default:
			keywords = append(keywords, strings.ReplaceAll(key, "-", "_")+"="+pythonText(value))
		}
	}
	if len(args) == 0 {
		args = []string{"…"}
	}
	return "robocache." + name + "(" + strings.Join(append(args, keywords...), ", ") + ")"
}

// pythonText writes a value as a literal of Python.
func pythonText(v any) string {
	switch v := v.(type) {
	case bool:
		if v {
			return "True"
		}
		return "False"
	case nil:
		return "…"
	case map[string]any:
		texts := make([]string, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, jsonText(key)+": "+pythonText(v[key]))
		}
		return "{" + strings.Join(texts, ", ") + "}"
	case []any:
		texts := make([]string, len(v))
		for i, x := range v {
			texts[i] = pythonText(x)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	return jsonText(v)
}

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// Each interface writes an option in its own words. The command line uses the flags of the running
// verb.
func TestOptionWords(t *testing.T) {
	path := map[string][]any{
		"keys":           nil,
		"missing":        {"pad"},
		"skip_bad":       {true},
		"options":        {"timestamp_unit", "ms"},
		"rows_hz":        {robocache.Rate{Num: 30000, Den: 1001}},
		"align":          {"relative", "action", false},
		"map":            {"streams", "action", "from", []string{"a", "b"}},
		"on_bad_episode": {"skip"},
		"stats":          {"compute"},
		"pin_memory":     {false},
		"cache_budget":   nil,
		"follow_links":   nil,
		"augment":        {"hflip", "negate", "action", []int{0}},
		"dtype":          {"keep"},
		"stop":           {"all"},
		"depth_unit":     nil,
	}
	for _, c := range []struct{ surface, option, want string }{
		{"convert", "keys", "--keys"},
		{"doctor", "keys", "robocache convert --keys"},
		{"edit merge", "keys", "robocache convert --keys"},
		{"convert", "missing", `windows=robocache.Windows(missing="pad") in Python`},
		{"stats", "skip_bad", "--skip-bad"},
		{"convert", "on_bad_episode", "--skip-bad"},
		{"doctor", "options", "--option timestamp_unit=ms"},
		{"doctor", "rows_hz", "--rows-hz 30000/1001"},
		{"causality", "preset", "--align causal"},
		{"doctor", "preset", "robocache convert --align causal"},
		{"Python", "preset", `align="causal"`},
		{"Go", "preset", "Align: {Causal: true}"},
		{"doctor", "align", `robocache convert --align '{"relative": {"action": false}}'`},
		{"convert", "map", `--map '{"streams": {"action": {"from": ["a", "b"]}}}'`},
		{"Python", "keys", "keys="},
		{"Python", "missing", `windows=robocache.Windows(missing="pad")`},
		{"Python", "skip_bad", "skip_bad=True"},
		{"Python", "on_bad_episode", `order=robocache.Order(on_bad_episode="skip")`},
		{
			"Python",
			"options",
			`options={"timestamp_unit": "ms"} (open=robocache.Open(options={"timestamp_unit": "ms"}) of a Loader)`,
		},
		{
			"Python",
			"rows_hz",
			`rows_hz="30000/1001" (open=robocache.Open(rows_hz="30000/1001") of a Loader)`,
		},
		{"Python", "follow_links", "follow_links="},
		{
			"Python",
			"augment",
			`augment=robocache.Augment(hflip={"p": …, "negate": {"action": [0]}})`,
		},
		{"Python", "dtype", `windows=robocache.Windows(dtype="keep")`},
		{"Python", "stop", `mixture=robocache.Mixture(stop="all")`},
		{"Python", "depth_unit", "images=robocache.Images(depth_unit=…)"},
		{"Python", "align", `align=robocache.Align(relative={"action": False})`},
		{"Python", "stats", `statistics=robocache.Statistics(compute=True)`},
		{"Python", "pin_memory", `device=robocache.Device("cuda", pin_memory=False)`},
		{"Python", "cache_budget", `cache=robocache.Cache(…, budget=…)`},
		{"Go", "keys", "Keys"},
		{"Go", "missing", `Missing: "pad"`},
		{"Go", "rows_hz", `OpenOptions.HZ: "30000/1001"`},
		{"Go", "align", `Align: {Relative: {"action": false}}`},
	} {
		words := map[string]robocache.Words{
			"Python": robocache.PythonWords,
			"Go":     robocache.GoWords,
		}[c.surface]
		if words.Option == nil {
			verb, _, err := newRoot().Find(strings.Fields(c.surface))
			if err != nil {
				t.Fatal(err)
			}
			words = wordsOf(verb)
		}
		robocache.SetWords(words)
		got := robocache.Option(c.option, path[c.option]...)
		if c.option == "preset" {
			got = robocache.Option("align", "causal")
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.surface, got, c.want)
		}
	}
	for line, want := range map[string]string{
		"causality URI --align=causal":                  `robocache.causality(URI, align="causal")`,
		"doctor --fix --in-place":                       `robocache.doctor(…, fix=True, in_place=True)`,
		"doctor --fix --drop-bad":                       `robocache.doctor(…, fix=True, drop_bad=True)`,
		"edit reencode SRC DST --codec=h264 --gop=8":    `robocache.edit.reencode(SRC, DST, codec="h264", gop=8)`,
		"edit delete some/set --episodes=3,7":           `robocache.edit.delete("some/set", episodes="3,7")`,
		"synth FILE.hdf5 --format=robomimic":            `'robocache synth FILE.hdf5 --format=robomimic'`,
		"edit recompute-stats":                          `robocache.edit.recompute_stats(…)`,
		"doctor --decode some/set":                      `robocache.doctor("some/set", decode=True)`,
		"stats URI --out=FILE":                          `robocache.stats(URI, out=FILE)`,
		"convert SET/recordings DST --to=mcap --hz=0.5": `robocache.convert("SET/recordings", DST, to="mcap", hz=0.5)`,
	} {
		if got := robocache.PythonWords.Command(line); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := robocache.GoWords.Command(line), "'robocache "+line+"'"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	robocache.SetWords(robocache.GoWords)
}

// calls calls fn with each call of robocache.Option, Command and WithHint in the product's source.
// inFunction is false for the value of a package variable.
func calls(t *testing.T, fn func(file, name string, call *ast.CallExpr, inFunction bool)) {
	t.Helper()
	root := realdata.Root(t)
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*/*.go", "*/*/*.go", "*/*/*/*.go", "*/*/*/*/*.go"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, path := range files {
		name, _ := filepath.Rel(root, path)
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(name, ".") ||
			strings.Contains(name, "testdata") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			_, inFunction := decl.(*ast.FuncDecl)
			functions := []ast.Node{}
			if inFunction {
				functions = append(functions, decl)
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if f, ok := n.(*ast.FuncLit); ok {
					functions = append(functions, f)
				}
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				inFunction := slices.ContainsFunc(
					functions,
					func(f ast.Node) bool { return f.Pos() <= call.Pos() && call.End() <= f.End() },
				)
				switch f := call.Fun.(type) {
				case *ast.SelectorExpr:
					x, _ := f.X.(*ast.Ident)
					if f.Sel.Name == "WithHint" || x != nil && x.Name == "robocache" {
						fn(name, f.Sel.Name, call, inFunction)
					}
				case *ast.Ident:
					if !strings.Contains(name, "/") {
						fn(name, f.Name, call, inFunction)
					}
				}
				return true
			})
		}
	}
}

// literal returns the first argument of a call, if it is a literal string.
func literal(call *ast.CallExpr) (string, bool) {
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

var (
	pythonFunction  = regexp.MustCompile(`(?s)def \w+\((.*?)\)(?: -> [^\n]*)?:\n`)
	pythonParameter = regexp.MustCompile(`(\w+)(?:: |=)`)
)

// pythonParameters returns the names of the parameters of the functions of the Python package.
func pythonParameters(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(realdata.Root(t), "python", "robocache", "*.py"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	out := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range pythonFunction.FindAllStringSubmatch(string(b), -1) {
			for _, p := range pythonParameter.FindAllStringSubmatch(f[1], -1) {
				out[p[1]] = true
			}
		}
	}
	// **options are the flags
	for _, verb := range []string{"convert", "doctor", "stats", "inspect", "pull", "push"} {
		c, _, err := newRoot().Find([]string{verb})
		if err != nil {
			t.Fatal(err)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) { out[strings.ReplaceAll(f.Name, "-", "_")] = true })
	}
	return out
}

var (
	pythonGroup = regexp.MustCompile(`(?m)^    "(\w+)": (\w+),$`)
	groupField  = regexp.MustCompile(`^(\w+)=robocache\.(\w+)\(.*?(\w+)=…\)`)
)

// pythonFields returns the fields of the groups of options in Python as keyword.Group.field.
func pythonFields(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(realdata.Root(t), "python", "robocache", "options.py"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, group := range pythonGroup.FindAllStringSubmatch(string(b), -1) {
		_, class, _ := strings.Cut(string(b), "\nclass "+group[2]+":\n")
		class, _, _ = strings.Cut(class, "\n\n\n")
		for _, field := range regexp.MustCompile(`(?m)^    (\w+): .* = `).FindAllStringSubmatch(class,
			-1) {
			out[group[1]+"."+group[2]+"."+field[1]] = true
		}
	}
	return out
}

// Each option that a hint names is a keyword in Python. Its flag exists for the verb that names it.
func TestHintedOptionsExist(t *testing.T) {
	known := pythonParameters(t)
	fields := pythonFields(t)
	if !known["rows_hz"] || known["skip_bad_episodes"] || !fields["windows.Windows.missing"] {
		t.Fatal(slices.Sorted(maps.Keys(known)))
	}
	options, commands := map[string]bool{}, 0
	calls(t, func(file, name string, call *ast.CallExpr, inFunction bool) {
		switch text, ok := literal(call); {
		case name != "Option" && name != "Command" || !ok:
			return
		case !inFunction:
			t.Errorf(
				"%s: %s(%q) is the value of a package variable: its words are those of Go",
				file,
				name,
				text,
			)
		case name == "Option":
			options[text] = true
		default:
			commands++
			line := strings.NewReplacer("%s", "x", "%d", "1").Replace(text)
			if err := checkCommand(strings.Fields(line)); err != nil {
				t.Errorf("%s: %q: %v", file, text, err)
			}
			checkCall(t, file, line, known)
		}
	})
	if len(options) < 40 || commands < 30 {
		t.Errorf("found only %d options and %d commands", len(options), commands)
	}
	root := newRoot()
	convert, _, err := root.Find([]string{"convert"})
	if err != nil {
		t.Fatal(err)
	}
	for option := range options {
		keyword := option
		switch option {
		case "as":
			keyword = "to"
		case "skip_bad_episodes":
			keyword = "skip_bad"
		}
		text := robocache.PythonWords.Option(option, nil, nil)
		if m := groupField.FindStringSubmatch(text); m != nil {
			if place := m[1] + "." + m[2] + "." + m[3]; !fields[place] {
				t.Errorf("%s: %s: the Python package has no such group or field", option, text)
			}
		} else if !known[keyword] && !hasGroup(fields, keyword) {
			t.Errorf("no function of the Python package has the parameter %s", keyword)
		}
		eachVerb(root, func(c *cobra.Command) {
			for _, word := range strings.Fields(wordsOf(c).Option(option, nil, nil)) {
				flag, isFlag := strings.CutPrefix(word, "--")
				if isFlag && c.Flags().Lookup(flag) == nil && convert.Flags().Lookup(flag) == nil {
					t.Errorf("%s: %s: no such flag", c.CommandPath(), word)
				}
			}
		})
	}
}

// Each option of a loader's configuration is a keyword or a grouped field in Python. It has the
// name of its field in Go.
func TestConfigInWords(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(realdata.Root(t), "python", "robocache", "loader.py"))
	if err != nil {
		t.Fatal(err)
	}
	_, signature, _ := strings.Cut(string(b), "def __init__(")
	signature, _, _ = strings.Cut(signature, "**groups")
	fields := pythonFields(t)
	// The Python package sets these itself; LeRobotDataset has tolerance_s.
	internal := []string{"compat", "raw", "decode_device", "offset_tolerance_s"}
	names := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[loader.Config]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || slices.Contains(internal, name) {
			continue
		}
		names++
		if field := robocache.GoWords.Option(name, nil, nil); !strings.EqualFold(field, f.Name) {
			t.Errorf("%s: %s in Go, expected %s", name, field, f.Name)
		}
		text := robocache.PythonWords.Option(name, nil, nil)
		if m := groupField.FindStringSubmatch(text); m != nil {
			if place := m[1] + "." + m[2] + "." + m[3]; !fields[place] {
				t.Errorf("%s: %s: the Python package has no such group or field", name, text)
			}
			continue
		}
		keyword := strings.TrimSuffix(text, "=")
		if !hasGroup(fields, keyword) &&
			!strings.Contains(signature, "\n        "+keyword+": ") {
			t.Errorf("%s: %s: not a keyword of robocache.Loader", name, text)
		}
	}
	if names < 40 {
		t.Errorf("found only %d options", names)
	}
}

// hasGroup reports whether a keyword of robocache.Loader takes a group, such as align=Align(…).
func hasGroup(fields map[string]bool, keyword string) bool {
	for place := range fields {
		if strings.HasPrefix(place, keyword+".") {
			return true
		}
	}
	return false
}

// checkCall checks the function and the keywords of a command in Python.
func checkCall(t *testing.T, file, line string, known map[string]bool) {
	t.Helper()
	call := robocache.PythonWords.Command(line)
	if strings.HasPrefix(call, "'robocache ") {
		return
	}
	for _, m := range regexp.MustCompile(`[(, ](\w+)=`).FindAllStringSubmatch(call, -1) {
		if !known[m[1]] {
			t.Errorf("%s: %s: no function has the parameter %s", file, call, m[1])
		}
	}
	if m := regexp.MustCompile(`^robocache\.edit\.(\w+)\(`).FindStringSubmatch(call); m != nil {
		b, err := os.ReadFile(filepath.Join(realdata.Root(t), "python", "robocache", "edit.py"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "def "+m[1]+"(") {
			t.Errorf("%s: %s: robocache.edit has no %s", file, call, m[1])
		}
	}
}

// eachVerb calls fn with each verb.
func eachVerb(c *cobra.Command, fn func(c *cobra.Command)) {
	for _, sub := range c.Commands() {
		if sub.Runnable() {
			fn(sub)
		}
		eachVerb(sub, fn)
	}
}

// ofOneSurface lists packages whose hints are seen by users of only one interface.
var ofOneSurface = []string{
	"internal/cli/",
	"bench/",
	"submit/",
	"shard/",
	"synth/",
	"cmd/librobocache/",
	"hints.go",
}

// spelled matches an option in the words of one interface.
var spelled = regexp.MustCompile(
	`(?:^|[\s('])--[a-z]|\b(?:keys|on_bad_episode|missing|rows_hz|hz|image_size|options|align|cache|stats|anchor|map)=|align=\{|\boption \w+=`,
)

// keyword matches an option of a Loader as Python writes it, with or without a value.
var keyword = regexp.MustCompile(
	`\b(?:normalize|augment|image_\w+|batch_size|world_size|shuffle|stratified|stop|cache\w*|keys|cameras|` +
		`anchor|hz|rows_hz|depth_unit|edge|times|windows|delta_\w+|on_\w+|missing|pool_\w+|device|decode)=`,
)

// No message of the loader or of align writes an option in the words of Python.
func TestMessagesNameOptionsByWords(t *testing.T) {
	messages := 0
	literals(t, func(file, text string, _ bool) {
		if !strings.HasPrefix(file, "loader/") && !strings.HasPrefix(file, "align/") {
			return
		}
		messages++
		if m := keyword.FindString(text); m != "" {
			t.Errorf("%s: %q has %q in the words of Python: use robocache.Option", file, text, m)
		}
	})
	if messages < 1000 {
		t.Errorf("found only %d messages", messages)
	}
}

// No hint writes an option in the words of one interface.
func TestHintsNameOptionsByWords(t *testing.T) {
	foreign := []string{"hf download", "mcap compress", "--shards of plan"}
	check := func(file, text string) {
		if slices.ContainsFunc(
			ofOneSurface,
			func(p string) bool { return strings.HasPrefix(file, p) },
		) ||
			slices.ContainsFunc(foreign, func(p string) bool { return strings.Contains(text, p) }) {
			return
		}
		if c, _, err := newRoot().Find(strings.Fields(text + " x")[:1]); err == nil &&
			c.HasParent() {
			return // the argument of Command
		}
		if m := spelled.FindString(text); m != "" && !strings.Contains(text, "VERB") {
			t.Errorf(
				"%s: %q has %q in the words of one surface: use robocache.Option or Command",
				file,
				text,
				m,
			)
		}
	}
	hints := 0
	literals(t, func(file, text string, hint bool) {
		if hint {
			hints++
			check(file, text)
		}
	})
	calls(t, func(file, name string, call *ast.CallExpr, _ bool) {
		if text, ok := literal(call); ok && name == "WithHint" {
			hints++
			check(file, text)
		}
	})
	if hints < 400 {
		t.Errorf("found only %d hints", hints)
	}
}

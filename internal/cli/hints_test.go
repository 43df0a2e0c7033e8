package cli

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

var (
	// hintedCommand matches a command line in a hint: up to the end of the quotes, or of its words.
	hintedCommand = regexp.MustCompile(
		`'robocache ([^']*)'|robocache ((?:[a-z]+(?:-[a-z]+)*)(?: (?:--?[a-z][a-z-]*(?:[= ][A-Za-z0-9_./=%-]+)?|[A-Z][A-Z/]*|%s|%d))*)`,
	)
	hintedFlag = regexp.MustCompile(`(?:^|[\s('"])--([a-z][a-z-]+)`)
)

// commandsOf returns the command lines of a hint, without the name of the program.
func commandsOf(hint string) (out [][]string) {
	for _, m := range hintedCommand.FindAllStringSubmatch(hint, -1) {
		out = append(out, strings.Fields(m[1]+m[2]))
	}
	return out
}

// checkCommand returns an error if the command-line parser does not accept a command line.
func checkCommand(words []string) error {
	// stands for any verb below; one of them is checked
	if i := slices.Index(words, "VERB"); i > 0 {
		words = slices.Concat(words[:i], []string{"delete"}, words[i+1:])
	}
	c, rest, err := newRoot().Find(words)
	if err != nil || c.Parent() == nil {
		return fmt.Errorf("%v is no verb: %v", words, err)
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && name != "help" && c.Flags().Lookup(name) == nil &&
			c.InheritedFlags().Lookup(name) == nil {
			return fmt.Errorf("%s has no --%s", c.CommandPath(), name)
		}
	}
	return nil
}

// allFlags returns the flags of all verbs.
func allFlags() map[string]bool {
	out := map[string]bool{"help": true, "version": true}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { out[f.Name] = true })
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
	return out
}

// literals calls fn with each hint in the product's source: values of fields named Hint, and
// strings that name a command.
func literals(t *testing.T, fn func(file, text string, hint bool)) {
	t.Helper()
	root := realdata.Root(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root &&
				(strings.HasPrefix(name, ".") || slices.Contains([]string{
					"testdata",
					"python",
					"tests",
					"docs",
					"scripts",
					"bench",
				}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		hints := map[ast.Node]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Hint" {
					ast.Inspect(n.Value, func(n ast.Node) bool { hints[n] = true; return true })
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					if text, err := strconv.Unquote(n.Value); err == nil {
						fn(name, text, hints[n])
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each command and flag in a hint exists, and the command has the flag.
func TestHintedCommandsParse(t *testing.T) {
	flags := allFlags()
	for _, foreign := range []string{"sbatch", "mount", "repo-type"} { // of other programs
		flags[foreign] = true
	}
	commands := 0
	literals(t, func(file, text string, hint bool) {
		if strings.Contains(text, "robocache ") && !strings.Contains(text, "\n") {
			for _, words := range commandsOf(text) {
				c, _, err := newRoot().Find(words[:1])
				if err != nil || c.Parent() == nil {
					continue // prose: "robocache view writes it"
				}
				commands++
				if err := checkCommand(words); err != nil {
					t.Errorf("%s: %q: %v", file, text, err)
				}
			}
		}
		if !hint {
			return
		}
		for _, m := range hintedFlag.FindAllStringSubmatch(text, -1) {
			if !flags[m[1]] {
				t.Errorf("%s: %q names --%s, which no verb has", file, text, m[1])
			}
		}
	})
	if commands < 20 {
		t.Errorf("only %d commands found", commands)
	}
}

// damaged creates datasets of each format with findings. Each entry damages a good dataset in
// place.
func damaged(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	out := map[string]string{}
	made := func(name, format string, args ...string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		options := append(
			[]string{"synth", path, "--format", format, "--episodes", "3", "--seconds", "2"},
			args...)
		if code, _, errs := call(t, options...); code != exitDone {
			t.Fatalf("%v: exit %d: %s", options, code, errs)
		}
		out[name] = path
		return path
	}
	// first returns the first file below a folder with the given suffix that is larger than a few
	// bytes.
	first := func(path, ending string) string {
		t.Helper()
		found := ""
		_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && found == "" && strings.HasSuffix(p, ending) {
				if i, err := d.Info(); err == nil && i.Size() > 100 {
					found = p
				}
			}
			return nil
		})
		if found == "" {
			t.Fatalf("no *%s in %s", ending, path)
		}
		return found
	}
	cut := func(file string) {
		t.Helper()
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, b[:len(b)*2/3], 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	clocks := []string{"--cameras", "0", "--rates", "camera=30,joints=100"}
	made(
		"mcap-gaps",
		"mcap",
		append(clocks, "--dropout", "1s", "--late", "500ms", "--offset", "60ms")...)
	cut(first(made("mcap-cut", "mcap", append(clocks, "--write-option", "chunk=4096")...), ".mcap"))
	cut(first(made("rlds-cut", "rlds", "--cameras", "0"), "-00000-of-00001"))
	zarr := made("zarr-cut", "zarr", "--cameras", "0")
	for _, key := range []string{"data/action/0.0", "data/action/0"} {
		if file := filepath.Join(zarr, key); os.Remove(file) == nil {
			break
		}
	}
	cut(first(made("robomimic-cut", "robomimic", "--cameras", "0"), ".hdf5"))
	delta := made("delta-cut", "delta", "--cameras", "0")
	cut(first(delta, ".parquet"))
	loose := made("robomimic-loose", "robomimic", "--cameras", "0")
	if i, err := os.Stat(loose); err == nil && i.IsDir() {
		if err := os.WriteFile(filepath.Join(loose, "camera.mp4"), []byte("no video"),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(path string){
		"pointclouds": func(path string) { cut(first(path, ".bin")) },
		"calvin_like": func(path string) {
			cut(first(path, ".npz"))
			if err := os.Remove(filepath.Join(path, "training", "episode_0000020.npz")); err !=
				nil {
				t.Fatal(err)
			}
		},
		"rosbag2":       func(path string) { cut(first(path, ".db3")) },
		"bridge_rlds":   func(path string) { cut(first(path, "-of-00001")) },
		"aloha_like":    func(path string) { cut(first(path, ".hdf5")) },
		"hdf5_features": func(string) {},
	} {
		source, ok := realdata.Find(t, name)
		if !ok {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.CopyFS(path, os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
		if name == "pointclouds" {
			path = filepath.Join(path, "kitti")
		}
		damage(path)
		out[name] = path
	}
	return out
}

// hintsOf returns the findings of doctor, or its error with the hint as a finding.
func hintsOf(t *testing.T, path string) []robocache.Finding {
	t.Helper()
	code, out, errs := call(t, "doctor", path, "--json")
	var d struct{ Findings []robocache.Finding }
	if json.Unmarshal([]byte(out), &d) == nil && code != exitMalformed {
		return d.Findings
	}
	return []robocache.Finding{
		{Severity: robocache.SeverityError, Code: "error", Message: errs, Hint: errs},
	}
}

// stepsOf returns the command lines in a hint of doctor, without the name of the program. dst does
// not exist; a command that works in place gets a copy of the dataset there.
func stepsOf(t *testing.T, hint, path, dst string) (out [][]string) {
	t.Helper()
	const aligned = "robocache convert --align '"
	if before, text, ok := strings.Cut(hint, aligned); ok {
		var config json.RawMessage
		if json.NewDecoder(strings.NewReader(text)).Decode(&config) == nil {
			out = append(
				out,
				[]string{
					"convert",
					path,
					dst,
					"--hz",
					"30",
					"--skip-bad",
					"--align",
					string(config),
				},
			)
		}
		hint = before
	}
	for _, words := range commandsOf(hint) {
		if c, _, err := newRoot().Find(words[:1]); err != nil || c.Parent() == nil {
			continue // prose
		}
		words = slices.DeleteFunc(
			words,
			func(w string) bool { return w == "SRC" || w == "DST" || w == "URI" },
		)
		if slices.Contains(words, "--in-place") {
			if err := os.CopyFS(dst, os.DirFS(path)); err != nil {
				t.Fatal(err)
			}
			out = append(out, append(words, dst))
			continue
		}
		out = append(out, append(words, path, dst))
	}
	if strings.Contains(hint, "--rows-hz") {
		out = append(out, []string{"doctor", path, "--rows-hz", "10"})
	}
	return out
}

// Following a hint makes progress: each of its commands is accepted. If a command fails, its hint
// does not lead back to doctor or to the same command.
func TestHintsLeadOn(t *testing.T) {
	all := map[string]bool{}
	for name, path := range damaged(t) {
		t.Run(name, func(t *testing.T) {
			followed := map[string]bool{}
			for _, f := range hintsOf(t, path) {
				for _, words := range stepsOf(t, f.Hint, path, filepath.Join(t.TempDir(), "out")) {
					line := strings.Join(
						slices.DeleteFunc(slices.Clone(words), filepath.IsAbs),
						" ",
					)
					if followed[line] {
						continue
					}
					followed[line], all[line] = true, true
					if words[0] == "doctor" && len(words) == 3 && words[1] != "--fix" {
						t.Errorf("%s: doctor sends to doctor: %q", f.Code, f.Hint)
						continue
					}
					code, out, errs := call(t, words...)
					_, again, _ := strings.Cut(errs, "hint: ")
					switch {
					case code == exitMisuse:
						t.Errorf("%s: %v is not accepted: %s", f.Code, words, errs)
					case code != exitDone && code != exitFindings &&
						(strings.Contains(again, "robocache "+words[0]) ||
							strings.Contains(again, "robocache doctor")):
						t.Errorf("%s: %v sends back: %s", f.Code, words, errs)
					case words[0] == "doctor" && strings.Contains(out, " "+f.Code+":"):
						t.Errorf("%s: %v does not remove the finding: %s", f.Code, words, out)
					case words[0] == "doctor" && words[1] == "--fix" &&
						strings.Contains(out, "pass a destination"):
						t.Errorf("%s: %v writes nothing: %s", f.Code, words, out)
					}
				}
			}
		})
	}
	if len(all) < 3 {
		t.Errorf("only %d commands were followed: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
}

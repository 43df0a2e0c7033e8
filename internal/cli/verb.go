package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
)

// Outcome is what a verb answers to a caller in the process.
type Outcome struct {
	Result   json.RawMessage `json:"result"`          // what --json prints; a string where the verb printed text
	Findings bool            `json:"findings"`        // exit code 3
	Notes    []string        `json:"notes,omitempty"` // lines for people, which the command writes to stderr
}

// Verb runs one verb with --json for a caller in the process, and gives its error as it is. An option is a flag's name with _ for -, and its
// value in JSON; a list or an object is taken apart where the flag may be given several times. With terminal, progress and notes go to the process's stderr.
func Verb(ctx context.Context, verb string, args []string, options map[string]json.RawMessage, terminal bool) (_ *Outcome, err error) {
	root := newRoot()
	root.PersistentPreRunE = nil  // the log and the words of hints are those of the process
	words := strings.Fields(verb) // "edit undo"
	c, _, err := root.Find(words)
	if err != nil || c == root {
		return nil, misuse("unknown verb " + verb)
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if err := setOption(c, name, options[name]); err != nil {
			return nil, err
		}
	}
	if err := c.Flags().Set("json", "true"); err != nil {
		return nil, misuse(verb + " has no result to give")
	}
	var stdout, notes bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&notes)
	if terminal {
		root.SetErr(os.Stderr)
		ctx = withProgress(ctx)
	}
	root.SetArgs(slices.Concat(words, []string{"--"}, args))
	err = execute(ctx, root)
	out := &Outcome{Findings: errors.Is(err, errFindings)}
	if err != nil && !out.Findings {
		switch exitCode(ctx, err) {
		case exitInterrupted:
			return nil, cmp.Or(ctx.Err(), err)
		case exitMisuse: // of cobra's, which has no class
			if errors.Is(err, robocache.ErrMisuse) {
				return nil, err
			}
			return nil, robocache.Misuse(verb, nil, "").WithCause(err)
		}
		return nil, err
	}
	if text := strings.TrimSpace(notes.String()); text != "" {
		out.Notes = strings.Split(text, "\n")
	}
	out.Result = stdout.Bytes()
	if !json.Valid(out.Result) {
		out.Result, err = json.Marshal(stdout.String())
		return out, err
	}
	return out, nil
}

// setOption sets the flag that an option names.
func setOption(c *cobra.Command, name string, value json.RawMessage) error {
	if name == "options" { // as robocache.open and hints name it
		name = "option"
	}
	flag := c.Flags().Lookup(strings.ReplaceAll(name, "_", "-"))
	if flag == nil || flag.Name == "json" || flag.Name == "help" || strings.Contains(name, "-") {
		return unknownOption(c, name)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return misuse(name + ": " + err.Error())
	}
	if v == nil {
		return nil // as if it were not given
	}
	parts, several := flag.Value.(pflag.SliceValue)
	var texts []string
	list, isList := v.([]any)
	object, isObject := v.(map[string]any)
	_, isBool := v.(bool)
	switch {
	case isBool != (flag.Value.Type() == "bool"):
		return misuse(fmt.Sprintf("%s=%s: expected %s", name, value, expected(flag)))
	case isList && len(list) == 0: // as a flag it would be none given, and stand for all
		return misuse(name + "=[]: expected at least one, or the option left out")
	case isList:
		for _, x := range list {
			texts = append(texts, fmt.Sprint(x))
		}
	case isObject && several: // option={"key": value}
		for _, k := range slices.Sorted(maps.Keys(object)) {
			texts = append(texts, fmt.Sprintf("%s=%v", k, object[k]))
		}
	case isObject:
		texts = []string{string(value)}
	default:
		texts = []string{fmt.Sprint(v)}
	}
	var err error
	if several {
		if err = parts.Replace(texts); err == nil {
			flag.Changed = true
		}
	} else {
		err = c.Flags().Set(flag.Name, strings.Join(texts, ","))
	}
	if err == nil {
		return nil
	}
	if want := valueWords[flag.Value.Type()]; want != "" {
		return robocache.Misuse("", nil, "%s", name).Expected(want, string(value))
	}
	return misuse(fmt.Sprintf("%s=%s: %s", name, value, err))
}

// valueWords describes the values of the flag types of pflag, whose own errors are those of strconv.
var valueWords = map[string]string{
	"int": "an integer", "int64": "an integer", "int32": "an integer", "uint": "an integer of at least 0",
	"uint64": "an integer of at least 0", "float64": "a number", "bool": "true or false",
	"duration": "a duration such as 90s", "intSlice": "integers", "int64Slice": "integers",
	"float64Slice": "numbers",
}

// flagError returns the misuse error of a flag that cobra could not read.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		flag := invalid.GetFlag()
		if want := valueWords[flag.Value.Type()]; want != "" {
			return robocache.Misuse("", nil, "--%s", flag.Name).Expected(want, strconv.Quote(invalid.GetValue()))
		}
	}
	return misuse(err.Error())
}

func expected(flag *pflag.Flag) string {
	if flag.Value.Type() == "bool" {
		return "true or false"
	}
	return "a value (" + flag.Usage + ")"
}

// unknownOption tells of an option that the verb does not have, and of those that it has: the caller names the nearest.
func unknownOption(c *cobra.Command, name string) error {
	known := []string{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "json" && f.Name != "help" {
			known = append(known, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	return robocache.Misuse(c.Name(), robocache.Where{"option": name, "known": known}, "unknown option")
}

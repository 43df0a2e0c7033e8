package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
)

// flagNames are the flags of options that have another name in Python.
var flagNames = map[string]string{
	"options":           "option",
	"values":            "from",
	"on_bad_episode":    "skip-bad",
	"skip_bad_episodes": "skip-bad",
}

// otherMeanings are flags of verbs that have the name of an option and another meaning.
var otherMeanings = map[string]bool{
	"edit merge --keys": true,
}

// flagFor returns the flag of a verb by which an option is passed, "" if it has none.
func flagFor(c *cobra.Command, option string) string {
	flag, ok := flagNames[option]
	if !ok {
		flag = strings.ReplaceAll(option, "_", "-")
	}
	path := strings.TrimPrefix(c.CommandPath(), "robocache ")
	if otherMeanings[path+" --"+flag] || c.Flags().Lookup(flag) == nil {
		return ""
	}
	return flag
}

// wordsOf returns the words of hints on the command line while the verb c runs. An option is a flag
// of the verb, else one of convert, else a keyword in Python.
func wordsOf(c *cobra.Command) robocache.Words {
	return robocache.Words{
		Command: robocache.GoWords.Command,
		Option: func(name string, keys []string, value any) string {
			convert, _, err := c.Root().Find([]string{"convert"})
			flag := flagFor(c, name)
			switch {
			case flag != "":
				return flagText(c, flag, keys, value)
			case err == nil && flagFor(convert, name) != "":
				return "robocache convert " + flagText(convert, flagFor(convert, name), keys, value)
			default:
				return robocache.PythonWords.Option(name, keys, value) + " in Python"
			}
		},
	}
}

// flagText writes a flag of a verb with a value.
func flagText(c *cobra.Command, flag string, keys []string, value any) string {
	kind := c.Flags().Lookup(flag).Value.Type()
	switch {
	case kind == "bool" && value == false:
		return "--" + flag + "=false"
	case kind == "bool" || value == nil && len(keys) == 0:
		return "--" + flag
	case kind == "stringArray":
		return fmt.Sprintf("--%s %s=%v", flag, strings.Join(keys, "."), value)
	}
	switch value := value.(type) {
	case string, int, float64, fmt.Stringer:
		if len(keys) == 0 {
			return fmt.Sprintf("--%s %v", flag, value)
		}
	case []string:
		if len(keys) == 0 {
			return "--" + flag + " " + strings.Join(value, ",")
		}
	}
	// A value is written in JSON as in Go.
	_, text, _ := strings.Cut(robocache.GoWords.Option("value", keys, value), ": ")
	return "--" + flag + " '" + text + "'"
}

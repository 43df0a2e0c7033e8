package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
)

// flagNames maps options to flags whose name differs from the name in Python.
var flagNames = map[string]string{
	"options":           "option",
	"values":            "from",
	"on_bad_episode":    "skip-bad",
	"skip_bad_episodes": "skip-bad",
}

// otherMeanings lists flags that have the name of an option but another meaning.
var otherMeanings = map[string]bool{
	"edit merge --keys": true,
}

// flagFor returns the flag of a verb for an option, or "" if it has none.
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

// wordsOf returns the words for hints while the verb c runs. An option is written as a flag of the
// verb, else as a flag of convert, else as a keyword in Python.
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

// flagText formats a flag of a verb with a value.
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
	// Values are formatted as JSON, as in GoWords.
	_, text, _ := strings.Cut(robocache.GoWords.Option("value", keys, value), ": ")
	return "--" + flag + " '" + text + "'"
}

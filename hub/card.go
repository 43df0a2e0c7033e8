package hub

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
)

// The generated part of a card is between these comments. Each push replaces it.
const (
	generatedBegin = "<!-- robocache: what follows is made from the dataset by `robocache push` -->"
	generatedEnd   = "<!-- /robocache -->"
)

// tasksShown is the maximum number of tasks that a card lists.
const tasksShown = 20

// Card returns the README of a dataset, made from its report. It keeps the keys and the text of
// old, the existing README. With an empty license, no license is added.
func Card(r *inspect.Report, name, license, preview string, old []byte) (_ []byte, err error) {
	head, body := splitFrontMatter(string(old))
	keys := &yaml.Node{Kind: yaml.MappingNode}
	if head != "" {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(head), &doc); err != nil || len(doc.Content) != 1 ||
			doc.Content[0].Kind != yaml.MappingNode {
			return nil, robocache.Malformed("push", robocache.Where{
				"file": "README.md",
			}, "the lines between --- are no keys of YAML").
				WithCause(err).
				WithHint("correct or remove them")
		}
		keys = doc.Content[0]
	}
	set := func(key string, value any, replace bool) error {
		var v yaml.Node
		if err := v.Encode(value); err != nil {
			return err
		}
		for i := 0; i+1 < len(keys.Content); i += 2 {
			if keys.Content[i].Value == key {
				if replace {
					keys.Content[i+1] = &v
				}
				return nil
			}
		}
		keys.Content = append(keys.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &v)
		return nil
	}
	if license != "" {
		if err := set("license", license, true); err != nil {
			return nil, err
		}
	}
	if err := set("task_categories", []string{"robotics"}, false); err != nil {
		return nil, err
	}
	if r.Format == "lerobot" {
		if err := set("tags", []string{"LeRobot"}, false); err != nil {
			return nil, err
		}
		if err := set("configs",
			[]map[string]string{{"config_name": "default", "data_files": "data/*/*.parquet"}},
			false); err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(body) == "" {
		body = "# " + escapeMarkdown(name) + "\n"
	}
	before, after := body, ""
	if at := strings.Index(body, generatedBegin); at >= 0 {
		before = body[:at]
		if _, rest, ok := strings.Cut(body[at:], generatedEnd); ok {
			after = rest
		}
	}
	var b bytes.Buffer
	b.WriteString("---\n")
	encoded, err := yaml.Marshal(keys)
	if err != nil {
		return nil, err
	}
	b.Write(encoded)
	b.WriteString("---\n\n" + strings.TrimSpace(before) + "\n\n" + generatedBegin + "\n\n")
	writeDescription(&b, r, preview)
	b.WriteString("\n" + generatedEnd + "\n")
	if after = strings.TrimSpace(after); after != "" {
		b.WriteString("\n" + after + "\n")
	}
	return b.Bytes(), nil
}

// splitFrontMatter splits a README into its YAML keys and its text.
func splitFrontMatter(text string) (head, body string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if rest, ok := strings.CutPrefix(text, "---\n"); ok {
		if strings.HasPrefix(rest, "---\n") {
			return "", rest[4:]
		}
		if head, body, ok := strings.Cut(rest, "\n---\n"); ok {
			return head, body
		}
		if head, ok := strings.CutSuffix(rest, "\n---"); ok {
			return head, ""
		}
	}
	return "", text
}

// writeDescription writes a Markdown description of the dataset.
func writeDescription(b *bytes.Buffer, r *inspect.Report, preview string) {
	fmt.Fprintf(b, "%d episodes, %d frames", r.Episodes, r.Frames)
	if !r.FPS.Zero() {
		fmt.Fprintf(b, " at %s Hz", r.FPS)
	}
	if r.DurationS > 0 {
		fmt.Fprintf(b, ", %.1f s", r.DurationS)
	}
	if r.Robot != "" {
		fmt.Fprintf(b, ", robot %s", escapeMarkdown(r.Robot))
	}
	fmt.Fprintf(b, "; %s.\n", strings.TrimSpace(r.Format+" "+r.Version))
	if preview != "" {
		fmt.Fprintf(
			b,
			"\n![an episode: frames of its cameras, and its other streams over time](%s)\n",
			preview,
		)
	}
	b.WriteString(
		"\n| feature | kind | dtype | shape | rate (Hz) | codec |\n|---|---|---|---|---|---|\n",
	)
	for _, s := range r.Streams {
		rate := ""
		if s.RateHz > 0 {
			rate = strconv.FormatFloat(s.RateHz, 'g', 6, 64)
		}
		fmt.Fprintf(
			b,
			"| %s | %s | %s | %s | %s | %s |\n",
			escapeMarkdown(s.Key),
			s.Kind,
			s.DType,
			strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Shape), "[]"), " ", "×"),
			rate,
			escapeMarkdown(s.Codec),
		)
	}
	if len(r.Tasks) > 0 {
		fmt.Fprintf(b, "\nTasks (%d):\n\n", len(r.Tasks))
		for _, t := range r.Tasks[:min(len(r.Tasks), tasksShown)] {
			fmt.Fprintf(b, "- %s\n", escapeMarkdown(t.Text))
		}
		if n := len(r.Tasks) - tasksShown; n > 0 {
			fmt.Fprintf(b, "- … and %d more\n", n)
		}
	}
}

// escapeMarkdown returns s as one line in which no character has a meaning in Markdown.
func escapeMarkdown(s string) string {
	var b strings.Builder
	for _, c := range strings.Join(strings.Fields(s), " ") {
		if strings.ContainsRune("\\`*{}[]<>#!|~&$", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

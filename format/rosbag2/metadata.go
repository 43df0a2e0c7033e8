package rosbag2

import (
	"bytes"
	"path"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

const (
	metadataName  = "metadata.yaml"
	metadataLimit = 16 << 20
	maxFiles      = 1 << 16
)

// metadata is what metadata.yaml says.
type metadata struct {
	version     int
	storage     string // sqlite3, mcap
	files       []string
	compression string // format: "zstd"
	mode        string // "FILE", "MESSAGE"
	messages    int64
	topics      []metaTopic
	distro      string
	custom      map[string]string
}

type metaTopic struct{ name, typ, qos string }

func badMetadata(msg string, err error) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "metadata", Where: robocache.Where{"file": metadataName}, Msg: msg, Err: err}
}

// parseMetadata reads a metadata.yaml; nil without an error where the text is no rosbag2 metadata.
func parseMetadata(text []byte, folder string) (*metadata, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil // a recorder that was killed while it wrote
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, badMetadata("not YAML", err)
	}
	root := member(&doc, "rosbag2_bagfile_information")
	if root == nil {
		return nil, nil
	}
	m := &metadata{version: int(number(member(root, "version"))), storage: scalar(member(root, "storage_identifier")), compression: scalar(member(root, "compression_format")),
		mode: strings.ToUpper(scalar(member(root, "compression_mode"))), messages: number(member(root, "message_count")), distro: scalar(member(root, "ros_distro"))}
	names := items(member(root, "relative_file_paths"))
	if len(names) == 0 {
		for _, f := range items(member(root, "files")) {
			names = append(names, member(f, "path"))
		}
	}
	if len(names) > maxFiles {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "metadata", Msg: strconv.Itoa(len(names)) + " files"}
	}
	seen := map[string]bool{}
	for _, n := range names {
		name, err := inside(scalar(n), folder, m.version)
		if err != nil {
			return nil, err
		}
		if !seen[name] {
			seen[name] = true
			m.files = append(m.files, name)
		}
	}
	for _, t := range items(member(root, "topics_with_message_count")) {
		d := member(t, "topic_metadata")
		m.topics = append(m.topics, metaTopic{scalar(member(d, "name")), scalar(member(d, "type")), qosText(member(d, "offered_qos_profiles"))})
	}
	if c := member(root, "custom_data"); c != nil && c.Kind == yaml.MappingNode {
		m.custom = map[string]string{}
		for k := 0; k+1 < len(c.Content); k += 2 {
			m.custom[scalar(c.Content[k])] = scalar(c.Content[k+1])
		}
	}
	return m, nil
}

// inside cleans a file's name (B2). Before version 4 names begin with the folder's own.
func inside(name, folder string, version int) (string, error) {
	clean, err := store.CleanName(name)
	if err != nil {
		return "", &robocache.Error{Class: robocache.ErrMalformed, Op: "metadata", Where: robocache.Where{"file": metadataName}, Msg: "relative_file_paths names a file outside the recording: " + strconv.Quote(clip(name)), Err: err,
			Hint: "list the files by their names in the folder"}
	}
	if version < 4 {
		if dir, base := path.Split(clean); strings.TrimSuffix(dir, "/") == folder || dir != "" && !strings.Contains(strings.TrimSuffix(dir, "/"), "/") && folder == "" {
			return base, nil
		}
	}
	return clean, nil
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

// member is the value of a key; nil where there is none. Aliases are not followed: no recorder writes them.
func member(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for k := 0; k+1 < len(n.Content); k += 2 {
		if n.Content[k].Value == key {
			return n.Content[k+1]
		}
	}
	return nil
}

func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

func number(n *yaml.Node) int64 {
	v, err := strconv.ParseInt(scalar(n), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// qosText is the quality of service as a text: YAML within YAML in most versions, a list in later ones.
func qosText(n *yaml.Node) string {
	if n == nil || n.Kind == yaml.ScalarNode {
		return scalar(n)
	}
	for _, p := range items(n) {
		if d := member(p, "durability"); d != nil {
			return "durability: " + scalar(d)
		}
	}
	return ""
}

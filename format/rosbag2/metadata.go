package rosbag2

import (
	"bytes"
	"errors"
	"path"
	"regexp"
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

// metadata is the content of metadata.yaml.
type metadata struct {
	version     int
	files       []string
	compression string // compression format: "zstd"
	messages    int64
	topics      []metaTopic
	distro      string
	custom      map[string]string
	wrongTypes  []string // messages about values of a wrong type, which are ignored
}

type metaTopic struct{ name, typ, qos string }

// metadataFile is the structure of the YAML file.
type metadataFile struct {
	Info *struct {
		Version     string   `yaml:"version"`
		Compression string   `yaml:"compression_format"`
		Messages    string   `yaml:"message_count"`
		Distro      string   `yaml:"ros_distro"`
		Names       []string `yaml:"relative_file_paths"`
		Files       []struct {
			Path string `yaml:"path"`
		} `yaml:"files"`
		Topics []struct {
			Metadata struct {
				Name string `yaml:"name"`
				Type string `yaml:"type"`
				// YAML inside YAML in most versions, and a list in later ones.
				QoS yaml.Node `yaml:"offered_qos_profiles"`
			} `yaml:"topic_metadata"`
		} `yaml:"topics_with_message_count"`
		Custom map[string]string `yaml:"custom_data"`
	} `yaml:"rosbag2_bagfile_information"`
}

// notYAML is the message about a metadata.yaml that cannot be parsed.
const notYAML = "not YAML"

func badMetadata(msg string, err error) error {
	return robocache.Malformed("metadata", robocache.Where{"file": metadataName}, "%s", msg).
		WithCause(err)
}

var yamlTypeError = regexp.MustCompile(
	"(?s)^line (\\d+): cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.*)$",
)

// plainTypeError returns an error of the YAML decoder without the names of Go types.
func plainTypeError(text string) string {
	m := yamlTypeError.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	want := "a text"
	switch {
	case strings.HasPrefix(m[4], "[]"):
		want = "a list"
	case strings.HasPrefix(m[4], "map") || strings.Contains(m[4], "struct"):
		want = "an object"
	}
	found, ok := map[string]string{"seq": "a list", "map": "an object"}[m[2]]
	if !ok {
		found = strconv.Quote(m[3])
	}
	return "line " + m[1] + ": expected " + want + ", found " + found
}

// parseMetadata parses a metadata.yaml. It returns nil without an error if the text is not rosbag2
// metadata.
func parseMetadata(text []byte, folder string) (*metadata, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil // the recorder was killed while it wrote
	}
	var doc metadataFile
	var wrongTypes *yaml.TypeError // values of wrong types are ignored
	if err := yaml.Unmarshal(text, &doc); err != nil && !errors.As(err, &wrongTypes) {
		return nil, badMetadata(notYAML, errors.New(strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	info := doc.Info
	if info == nil {
		return nil, nil
	}
	m := &metadata{compression: info.Compression, distro: info.Distro, custom: info.Custom}
	if wrongTypes != nil {
		for _, text := range wrongTypes.Errors {
			m.wrongTypes = append(m.wrongTypes, plainTypeError(text))
		}
	}
	m.version, _ = strconv.Atoi(info.Version)
	m.messages, _ = strconv.ParseInt(info.Messages, 10, 64)
	if len(info.Names) == 0 {
		for _, f := range info.Files {
			info.Names = append(info.Names, f.Path)
		}
	}
	if len(info.Names) > maxFiles {
		return nil, robocache.ResourceLimit("metadata", nil, "%d files", len(info.Names))
	}
	seen := map[string]bool{}
	for _, n := range info.Names {
		name, err := cleanFileName(n, folder, m.version)
		if err != nil {
			return nil, err
		}
		if !seen[name] {
			seen[name] = true
			m.files = append(m.files, name)
		}
	}
	for _, t := range info.Topics {
		qos := t.Metadata.QoS.Value
		var profiles []struct{ Durability string }
		_ = t.Metadata.QoS.Decode(&profiles) // fails if it is a text, which leaves profiles empty
		for _, p := range profiles {
			if qos == "" && p.Durability != "" {
				qos = "durability: " + p.Durability
			}
		}
		m.topics = append(m.topics, metaTopic{t.Metadata.Name, t.Metadata.Type, qos})
	}
	return m, nil
}

// cleanFileName returns the clean name of a file (rosbag2.B2). Before version 4, names begin with
// the name of the folder.
func cleanFileName(name, folder string, version int) (string, error) {
	clean, err := store.CleanName(name)
	if err != nil {
		return "", robocache.Malformed("metadata", robocache.Where{
			"file": metadataName,
		}, "relative_file_paths names a file outside the recording: %q", clipText(name)).
			WithCause(err).
			WithHint("list the files by their names in the folder")
	}
	if version < 4 {
		if dir, base := path.Split(clean); strings.TrimSuffix(dir, "/") == folder || dir != "" &&
			!strings.Contains(strings.TrimSuffix(dir, "/"), "/") && folder == "" {
			return base, nil
		}
	}
	return clean, nil
}

func clipText(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

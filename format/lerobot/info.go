package lerobot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// Limits of metadata files.
const (
	maxJSON      = 64 << 20
	maxJSONDepth = 128
	maxFeatures  = 65535
	maxLines     = 2 << 30
)

// declared is one entry of "features" in info.json.
type declared struct {
	key       string
	DType     string          `json:"dtype"`
	Shape     json.RawMessage `json:"shape"`
	Names     json.RawMessage `json:"names"`
	Info      map[string]any  `json:"info"`
	VideoInfo map[string]any  `json:"video_info"`
	FPS       json.RawMessage `json:"fps"`
	shape     []int
	// Statements about relative values, see readRelative.
	Relative   json.RawMessage `json:"relative"`
	IsRelative json.RawMessage `json:"is_relative"`
	Delta      json.RawMessage `json:"delta"`
	IsDelta    json.RawMessage `json:"is_delta"`
	Absolute   json.RawMessage `json:"absolute"`
}

// infoFile is meta/info.json.
type infoFile struct {
	version       string
	major, minor  int
	fps           robocache.Rate
	robot         string
	dataPath      string
	videoPath     string // "" if it is null
	chunksSize    int64
	totalEpisodes int64 // -1 if it is not stated
	totalFrames   int64
	totalTasks    int64
	splits        map[string]string
	features      []declared
	// streams with samples under recordings/, and their nominal rates
	streams map[string]float64
}

// infoError returns an error about the value at a JSON pointer of info.json.
func infoError(class error, pointer, msg string) *robocache.Error {
	return robocache.NewError(
		class,
		"lerobot",
		robocache.Where{"file": infoPath, "pointer": pointer},
		"%s",
		msg,
	)
}

// checkJSON rejects JSON that is empty, nested too deeply, or a Git LFS pointer. It returns b
// without a byte order mark.
func checkJSON(name string, b []byte) ([]byte, error) {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, robocache.Malformed("lerobot", robocache.Where{"file": name}, "").
			Expected("JSON", "an empty file").WithHint("fetch the file again")
	}
	if isLFSPointer(b) {
		return nil, lfsError(name)
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			if depth > maxJSONDepth {
				return nil, robocache.Malformed(
					"lerobot",
					robocache.Where{"file": name, "offset": i},
					"JSON nested deeper than %d",
					maxJSONDepth,
				)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return b, nil
}

// isLFSPointer reports whether b is a Git LFS pointer instead of the content of a file.
func isLFSPointer(b []byte) bool { return bytes.HasPrefix(b, []byte("version https://git-lfs")) }

// lfsError returns the error about a file that is a Git LFS pointer.
func lfsError(name string) *robocache.Error {
	return robocache.Malformed("lerobot", robocache.Where{"file": name}, "").
		Expected("data", "a Git LFS pointer").WithHint("fetch the data: git lfs pull")
}

// jsonError returns err with the place in b at which decoding failed. b is the content of the file
// name.
func jsonError(name string, b []byte, err error) error {
	return robocache.At(jsonmeta.Explain(string(op), b, err), robocache.Where{"file": name})
}

// unmarshalLine decodes a line of a .jsonl file, which must be one JSON object.
func unmarshalLine(b []byte, v any) error {
	var found string
	switch {
	case json.Valid(b) && b[0] != '{':
		found = "a line that is another value"
		if b[0] == '[' {
			found = "a line that is a list"
		}
	case bytes.HasPrefix(b, []byte("{")) || bytes.HasPrefix(b, []byte("[")):
		decoder := json.NewDecoder(bytes.NewReader(b))
		var first json.RawMessage
		err := decoder.Decode(&first)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			found = "a value that continues on the next line"
		case err == nil && decoder.InputOffset() < int64(len(b)):
			found = fmt.Sprintf("text after the object: %.40q", b[decoder.InputOffset():])
		}
	}
	if found != "" {
		return robocache.Malformed(string(op), nil, "").Expected("one JSON object per line", found).
			WithHint("write each object on a line of its own, without brackets or commas around it")
	}
	return jsonmeta.Unmarshal(string(op), b, v)
}

// eachMember calls each for the members of the JSON object b, in their order. A key that occurs
// twice is an error, because readers differ in which value they use. at is the JSON pointer of the
// object in its file.
func eachMember(at string, b []byte, each func(key string, value json.RawMessage) error) error {
	decoder := json.NewDecoder(bytes.NewReader(b))
	token, err := decoder.Token()
	if err == nil && token != json.Delim('{') {
		err = fmt.Errorf("expected an object")
	}
	seen := map[string]bool{}
	for err == nil && decoder.More() {
		if token, err = decoder.Token(); err != nil {
			return err
		}
		key, _ := token.(string)
		var v json.RawMessage
		if err = decoder.Decode(&v); err != nil {
			return err
		}
		if seen[key] {
			return robocache.Malformed(
				"lerobot",
				robocache.Where{"pointer": at + "/" + escapePointer(key)},
				"the key occurs twice",
			)
		}
		seen[key] = true
		if len(seen) > maxFeatures {
			return robocache.ResourceLimit(
				"lerobot",
				nil,
				"an object of more than %d keys",
				maxFeatures,
			)
		}
		err = each(key, v)
	}
	if err == nil {
		_, err = decoder.Token()
	}
	if err != nil {
		return err
	}
	rest := bytes.TrimSpace(b[min(decoder.InputOffset(), int64(len(b))):])
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes after the end of the object", len(rest))
	}
	return nil
}

// rejectDuplicates returns an error if an object in v, at any depth, has a key twice. at is the
// JSON pointer of v.
func rejectDuplicates(at string, v json.RawMessage) error {
	var list []json.RawMessage
	if bytes.HasPrefix(v, []byte("{")) {
		return eachMember(
			at,
			v,
			func(key string, v json.RawMessage) error {
				return rejectDuplicates(at+"/"+escapePointer(key), v)
			},
		)
	}
	if bytes.HasPrefix(v, []byte("[")) && json.Unmarshal(v, &list) == nil {
		for _, e := range list {
			if err := rejectDuplicates(at, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseInfo parses info.json. Deviations that do not affect reading become findings.
func parseInfo(raw []byte) (f *infoFile, found []robocache.Finding, err error) {
	defer crash.Recover("lerobot info", &err)
	b, err := checkJSON(infoPath, raw)
	if err != nil {
		return f, found, err
	}
	fields, err := infoFields(b)
	if err != nil {
		return nil, nil, err
	}
	f = &infoFile{totalEpisodes: -1, totalFrames: -1, totalTasks: -1}
	if err := f.readVersion(fields); err != nil {
		return f, found, err
	}
	note, err := f.readFPS(fields["fps"])
	if err != nil {
		return f, found, err
	}
	if note != "" {
		found = append(found, warningAt("fps-type", infoPath, note, "write fps as a number"))
	}
	f.robot = stringOf(fields["robot_type"])
	if err := f.readTemplates(fields); err != nil {
		return f, found, err
	}
	found = append(found, f.readCounts(fields)...)
	f.splits = parseSplits(fields["splits"])
	if f.streams, err = write.ParseStreams(fields[write.StreamsKey]); err != nil {
		found = append(found, warningAt(
			"metadata-type",
			infoPath,
			write.StreamsKey+" is not a list of streams: it is ignored",
			"write it again, or remove it",
		))
	}
	if err := f.readFeatures(fields["features"]); err != nil {
		return f, found, err
	}
	for k := range fields {
		if !knownInfo[k] {
			found = append(found, robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "unknown-key",
				Where:    robocache.Where{"file": infoPath, "pointer": "/" + k},
				Message:  "info.json has a key that no version defines: " + k,
			})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Message < found[j].Message })
	return f, found, nil
}

// infoFields returns the members of info.json.
func infoFields(b []byte) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	addField := func(key string, v json.RawMessage) error {
		fields[key] = v
		return nil
	}
	var whole json.RawMessage
	err := json.Unmarshal(b, &whole) // locates a syntax error in the whole file
	if err == nil {
		err = eachMember("", b, addField)
	}
	if err == nil {
		err = rejectDuplicates("/features", fields["features"])
	}
	if err != nil {
		return nil, jsonError(infoPath, b, err)
	}
	return fields, nil
}

// readTemplates sets the templates of file names.
func (f *infoFile) readTemplates(fields map[string]json.RawMessage) error {
	for key, to := range map[string]*string{"data_path": &f.dataPath, "video_path": &f.videoPath} {
		v := fields[key]
		if len(v) == 0 || string(v) == "null" {
			continue
		}
		if json.Unmarshal(v, to) != nil {
			return infoError(robocache.ErrMalformed, "/"+key, "expected a string")
		}
		if err := checkTemplate(*to); err != nil {
			where := robocache.Where{"file": infoPath, "pointer": "/" + key}
			return robocache.At(err, where)
		}
	}
	return nil
}

// readCounts sets the numbers of files, episodes, frames and tasks. It ignores values that are not
// counts, and returns a finding for each.
func (f *infoFile) readCounts(fields map[string]json.RawMessage) (found []robocache.Finding) {
	for key, to := range map[string]*int64{
		"chunks_size":    &f.chunksSize,
		"total_episodes": &f.totalEpisodes,
		"total_frames":   &f.totalFrames,
		"total_tasks":    &f.totalTasks,
	} {
		v, ok := fields[key]
		if !ok || string(v) == "null" {
			continue
		}
		n, isInteger := jsonmeta.Integer(v)
		if isInteger && n >= 0 {
			*to = n
			continue
		}
		found = append(found, warningAt(
			"metadata-type",
			infoPath,
			fmt.Sprintf("%s is %.40s, not a count: it is ignored", key, v),
			"write a number",
		))
	}
	if f.chunksSize <= 0 || f.chunksSize > 1<<31 {
		f.chunksSize = 1000
	}
	return found
}

// knownInfo lists the keys of info.json that some version defines.
var knownInfo = map[string]bool{
	"codebase_version":       true,
	"fps":                    true,
	"features":               true,
	"total_episodes":         true,
	"total_frames":           true,
	"total_tasks":            true,
	"chunks_size":            true,
	"data_files_size_in_mb":  true,
	"video_files_size_in_mb": true,
	"data_path":              true,
	"video_path":             true,
	"robot_type":             true,
	"splits":                 true,
	"tools":                  true,
	"total_videos":           true,
	"total_chunks":           true,
	"storage_format":         true,
	write.StreamsKey:         true,
}

// readVersion reads codebase_version and rejects unsupported versions.
func (f *infoFile) readVersion(fields map[string]json.RawMessage) error {
	v, ok := fields["codebase_version"]
	if !ok {
		return infoError(
			robocache.ErrMalformed,
			"/codebase_version",
			"missing: not a LeRobot dataset, or a damaged one",
		)
	}
	f.version = stringOf(v)
	majorText, minorText, hasMinor := strings.Cut(strings.TrimPrefix(f.version, "v"), ".")
	var majorErr, minorErr error
	f.major, majorErr = strconv.Atoi(majorText)
	if hasMinor {
		minorText, _, _ = strings.Cut(minorText, ".") // a third number does not matter
		f.minor, minorErr = strconv.Atoi(minorText)
	}
	if majorErr != nil || minorErr != nil {
		return infoError(
			robocache.ErrMalformed,
			"/codebase_version",
			fmt.Sprintf("expected a version such as v3.0, found %.40s", v),
		)
	}
	if s := stringOf(fields["storage_format"]); s != "" && s != "parquet" {
		return infoError(
			robocache.ErrUnsupported,
			"/storage_format",
			fmt.Sprintf("storage format %q", s),
		)
	}
	if f.major != 3 && (f.major != 2 || f.minor > 1) {
		e := infoError(robocache.ErrUnsupported, "/codebase_version", "LeRobot version "+f.version)
		e.Hint = "v2.0, v2.1 and v3.x can be read; older sets are converted by lerobot's own " +
			"scripts"
		return e
	}
	return nil
}

// readFPS reads the rate. note is not empty if fps has an unusual type.
func (f *infoFile) readFPS(v json.RawMessage) (note string, err error) {
	s := strings.TrimSpace(string(v))
	if text := stringOf(v); text != "" {
		s = text
		note = "fps is the string " + strconv.Quote(text)
	}
	f.fps, err = robocache.RateOf(s)
	isUnquotedFraction := strings.Contains(s, "/") && note == ""
	if err != nil || isUnquotedFraction {
		return note, infoError(
			robocache.ErrMalformed,
			"/fps",
			"expected a number above 0, found "+jsonmeta.Words(v),
		)
	}
	return note, nil
}

// readFeatures reads the declarations of features.
func (f *infoFile) readFeatures(v json.RawMessage) error {
	if len(v) == 0 {
		return infoError(robocache.ErrMalformed, "/features", "missing")
	}
	err := eachMember("/features", v, func(key string, v json.RawMessage) error {
		at := "/features/" + escapePointer(key)
		d := declared{key: key}
		err := jsonmeta.Unmarshal(string(op), v, &d)
		var e *robocache.Error
		if errors.As(err, &e) {
			inner, _ := e.Where["pointer"].(string)
			e.Where["pointer"] = at + inner
			return e
		}
		if d.DType == "" {
			at += "/dtype"
			err = errors.New("missing")
		} else if d.shape, err = readShape(d.Shape); err != nil {
			at += "/shape"
		}
		if err != nil {
			return infoError(robocache.ErrMalformed, at, err.Error())
		}
		f.features = append(f.features, d)
		return nil
	})
	var e *robocache.Error
	if err != nil && !errors.As(err, &e) {
		err = infoError(robocache.ErrMalformed, "/features", err.Error())
	}
	return robocache.At(err, robocache.Where{"file": infoPath})
}

// readShape reads a shape. A missing or empty shape is [1].
func readShape(v json.RawMessage) ([]int, error) {
	if len(v) == 0 || string(v) == "null" {
		return []int{1}, nil
	}
	var sizes []json.RawMessage
	if err := json.Unmarshal(v, &sizes); err != nil {
		n, ok := jsonmeta.Integer(v)
		if !ok {
			return nil, fmt.Errorf("expected a list of sizes, found %.40s", v)
		}
		sizes = []json.RawMessage{json.RawMessage(strconv.FormatInt(n, 10))}
	}
	if len(sizes) > 16 {
		return nil, fmt.Errorf("%d dimensions", len(sizes))
	}
	shape := []int{}
	total := int64(1)
	for _, r := range sizes {
		n, ok := jsonmeta.Integer(r)
		if !ok || n < 1 || n > 1<<31 {
			return nil, fmt.Errorf("expected sizes above 0, found %.60s", v)
		}
		if total *= n; total > 1<<31 {
			return nil, fmt.Errorf("%.60s has more than 2^31 elements", v)
		}
		shape = append(shape, int(n))
	}
	if len(shape) == 0 {
		return []int{1}, nil
	}
	return shape, nil
}

// stringOf returns the string in v, or "" if v is not a string.
func stringOf(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// parseSplits reads the splits as texts by name.
func parseSplits(v json.RawMessage) (out map[string]string) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(v, &members) // an invalid entry is left out
	for k, v := range members {
		if out == nil {
			out = map[string]string{}
		}
		out[k] = cmp.Or(stringOf(v), string(v))
	}
	return out
}

// escapePointer escapes a key for a JSON pointer.
func escapePointer(s string) string { return jsonmeta.EscapePointer(s) }

// warningAt returns a finding of severity warning about a file.
func warningAt(code, file, msg, hint string) robocache.Finding {
	return robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     code,
		Where:    robocache.Where{"file": file},
		Message:  msg,
		Hint:     hint,
	}
}

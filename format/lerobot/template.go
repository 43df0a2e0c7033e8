package lerobot

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// place is what the variables of a path template may stand for.
type place struct {
	episode int64 // episode_index (v2)
	chunk   int64 // chunk_index of the file (v3), or the episode's chunk (v2)
	file    int64 // file_index (v3)
	key     string
}

const maxTemplate = 4096

// checkTemplate refuses a template that no place can make a good path of. It is untrusted input.
func checkTemplate(t string) error {
	p, err := expand(t, place{key: "k"})
	if err != nil {
		return err
	}
	if strings.HasPrefix(p, "/") || strings.ContainsAny(p, "\\\x00") || slices.Contains(strings.Split(p, "/"), "..") {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Want: "a path below the dataset's root", Got: strconv.Quote(t)}
	}
	return nil
}

var (
	templateField  = regexp.MustCompile(`\{\{|\}\}|\{([^{}]*)\}|[{}]`)
	templateFormat = regexp.MustCompile(`^(0\d*)?d?$`)
)

// expand fills a Python format template. Only {name} and {name:03d} are known, as in every dataset seen.
func expand(t string, p place) (string, error) {
	if n := max(len(t), len(p.key)); n > maxTemplate {
		return "", &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Msg: fmt.Sprintf("path template, or key, of %d bytes", n)}
	}
	numbers := map[string]int64{"episode_chunk": p.chunk, "chunk_index": p.chunk, "episode_index": p.episode, "file_index": p.file}
	why := ""
	path := templateField.ReplaceAllStringFunc(t, func(m string) string {
		name, format, _ := strings.Cut(strings.Trim(m, "{}"), ":")
		n, ok := numbers[name]
		width, err := strconv.Atoi("0" + strings.TrimSuffix(format, "d"))
		switch {
		case m == "{{" || m == "}}":
			return m[:1]
		case len(m) == 1:
			why = "unbalanced braces"
		case name == "video_key" && format == "":
			return p.key
		case !ok:
			why = "unknown field " + strconv.Quote(name)
		case err != nil || width > 64 || !templateFormat.MatchString(format):
			why = "unknown format " + strconv.Quote(format)
		default:
			return fmt.Sprintf("%0*d", width, n)
		}
		return ""
	})
	if len(path) > maxTemplate {
		why = "gives a path that is too long"
	}
	if why != "" {
		return "", &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Msg: "path template " + strconv.Quote(t) + ": " + why, Hint: "fields such as {chunk_index:03d} are understood"}
	}
	return path, nil
}

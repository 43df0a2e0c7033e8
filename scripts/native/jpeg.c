// The door of video/turbojpeg to libjpeg-turbo. It announces itself to the program that links it (rc_jpeg_native, native.c there).
// Decoding is libjpeg's default: accurate inverse DCT, fancy upsampling. What PIL does, this does.
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "jpeglib.h"
#include "jerror.h"

enum { OK = 0, MALFORMED = 1, UNSUPPORTED = 2, NO_MEMORY = 3 };

// A progressive image is read once a scan: a small file may hold thousands of empty ones.
enum { MOST_SCANS = 200 };

typedef int (*rc_jpeg_func)(const unsigned char *in, size_t size, unsigned char *out, int width, int height, int channels, char *msg, size_t room);
extern rc_jpeg_func rc_jpeg_native;

struct fault {
	struct jpeg_error_mgr mgr;
	jmp_buf back;
	int damage; // the first warning that means wrong pixels
	char text[JMSG_LENGTH_MAX];
};

static void fail(j_common_ptr c)
{
	struct fault *f = (struct fault *)c->err;
	f->mgr.format_message(c, f->text);
	longjmp(f->back, 1);
}

static void hear(j_common_ptr c, int level)
{
	if (level >= 0)
		return;
	struct fault *f = (struct fault *)c->err;
	switch (f->mgr.msg_code) {
	case JWRN_HIT_MARKER:
	case JWRN_HUFF_BAD_CODE:
	case JWRN_ARITH_BAD_CODE:
	case JWRN_MUST_RESYNC:
		if (!f->damage) {
			f->damage = f->mgr.msg_code;
			f->mgr.format_message(c, f->text);
		}
	}
}

static void mute(j_common_ptr c) { (void)c; }

struct source {
	struct jpeg_source_mgr mgr;
	int ended; // more was wanted than there is
};

static void nothing(j_decompress_ptr c) { (void)c; }

static boolean more(j_decompress_ptr c)
{
	static const JOCTET end[2] = {0xff, JPEG_EOI};
	struct source *s = (struct source *)c->src;
	s->ended = 1;
	s->mgr.next_input_byte = end;
	s->mgr.bytes_in_buffer = sizeof end;
	return TRUE;
}

static void skip(j_decompress_ptr c, long n)
{
	struct jpeg_source_mgr *s = c->src;
	if (n <= 0)
		return;
	if ((size_t)n > s->bytes_in_buffer) {
		more(c);
		return;
	}
	s->next_input_byte += n;
	s->bytes_in_buffer -= n;
}

static void watch(j_common_ptr c)
{
	j_decompress_ptr d = (j_decompress_ptr)c;
	if (d->input_scan_number > MOST_SCANS)
		ERREXIT(d, JERR_TOO_LITTLE_DATA); // the text is replaced by the caller's
}

// rgb_of_cmyk converts as PIL's convert("RGB") does, of ink that is stored inverted (Adobe's way, which PIL takes for granted).
static void rgb_of_cmyk(const unsigned char *in, unsigned char *out, int width)
{
	for (int x = 0; x < width; x++, in += 4, out += 3) {
		int white = in[3]; // 255 - black
		for (int i = 0; i < 3; i++) {
			int ink = (255 - in[i]) * white + 128;
			int v = white - (((ink >> 8) + ink) >> 8);
			out[i] = v < 0 ? 0 : v;
		}
	}
}

static int class_of(int code)
{
	switch (code) {
	case JERR_OUT_OF_MEMORY:
	case JERR_NO_BACKING_STORE:
		return NO_MEMORY;
	case JERR_BAD_PRECISION:
	case JERR_SOF_UNSUPPORTED:
	case JERR_CONVERSION_NOTIMPL:
	case JERR_ARITH_NOTIMPL:
	case JERR_NOT_COMPILED:
	case JERR_CCIR601_NOTIMPL:
	case JERR_FRACT_SAMPLE_NOTIMPL:
		return UNSUPPORTED;
	}
	return MALFORMED;
}

// channels: 3 gives R, G, B; 1 the grey of a grey image. msg gets the reason of what is not OK.
static int decode(const unsigned char *in, size_t size, unsigned char *out, int width, int height, int channels, char *msg, size_t room)
{
	struct jpeg_decompress_struct c;
	struct fault f;
	struct source s;
	struct jpeg_progress_mgr progress;
	const char *reason = NULL;
	volatile int code = OK;

	memset(&c, 0, sizeof c);
	memset(&s, 0, sizeof s);
	memset(&progress, 0, sizeof progress);
	c.err = jpeg_std_error(&f.mgr);
	f.mgr.error_exit = fail;
	f.mgr.emit_message = hear;
	f.mgr.output_message = mute;
	f.damage = 0;
	f.text[0] = 0;
	if (setjmp(f.back)) {
		int too_many = c.input_scan_number > MOST_SCANS;
		snprintf(msg, room, "%s", too_many ? "more scans than any image has" : f.text);
		code = too_many ? MALFORMED : class_of(f.mgr.msg_code);
		jpeg_destroy_decompress(&c);
		return code;
	}
	jpeg_create_decompress(&c);
	progress.progress_monitor = watch;
	c.progress = &progress;
	s.mgr.init_source = nothing;
	s.mgr.fill_input_buffer = more;
	s.mgr.skip_input_data = skip;
	s.mgr.resync_to_restart = jpeg_resync_to_restart;
	s.mgr.term_source = nothing;
	s.mgr.next_input_byte = in;
	s.mgr.bytes_in_buffer = size;
	c.src = &s.mgr;

	jpeg_read_header(&c, TRUE);
	if (c.image_width != (JDIMENSION)width || c.image_height != (JDIMENSION)height) {
		reason = "two frame headers differ";
		code = MALFORMED;
	} else if (c.num_components != 1 && c.num_components != 3 && c.num_components != 4) {
		reason = "neither grey, RGB, YCbCr, CMYK nor YCCK";
		code = UNSUPPORTED;
	} else if (channels == 1 && c.num_components != 1) {
		reason = "a colour image as grey";
		code = UNSUPPORTED;
	} else {
		size_t row = (size_t)width * channels;
		JSAMPROW ink = NULL;
		c.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
		if (c.num_components == 4) {
			c.out_color_space = JCS_CMYK;
			ink = (*c.mem->alloc_large)((j_common_ptr)&c, JPOOL_IMAGE, (size_t)width * 4);
		}
		jpeg_start_decompress(&c);
		while (c.output_scanline < c.output_height) {
			JSAMPROW rows[8];
			unsigned y = c.output_scanline, n = 0;
			if (ink) {
				if (jpeg_read_scanlines(&c, &ink, 1) != 1)
					break;
				rgb_of_cmyk(ink, out + y * row, width);
				continue;
			}
			for (; n < 8 && y + n < c.output_height; n++)
				rows[n] = out + (y + n) * row;
			if (jpeg_read_scanlines(&c, rows, n) == 0)
				break;
		}
		if (c.output_scanline < c.output_height || (s.ended && jpeg_has_multiple_scans(&c))) {
			reason = "the data ends early";
			code = MALFORMED;
		} else if (f.damage) {
			reason = f.text;
			code = MALFORMED;
		}
	}
	if (reason)
		snprintf(msg, room, "%s", reason);
	jpeg_destroy_decompress(&c);
	return code;
}

__attribute__((constructor)) static void announce(void) { rc_jpeg_native = decode; }

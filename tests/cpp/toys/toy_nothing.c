/* A shared library that is no plugin. */
int toy_nothing(void);
int toy_nothing(void) { return 0; }
